"""Everything that a person can do on the dashboard, done in a browser and seen in the database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.acceptance.harness import Home
from tests.browser import SEEN_MS, Window, a_browser, a_window
from tests.waiting import wait_until

STATUS = "SELECT status FROM experiments WHERE id = ?"
HELD = "SELECT count(*) FROM trials WHERE experiment_id = ? AND status = 'running'"
TRIALS = "SELECT number, status FROM trials WHERE experiment_id = ? ORDER BY number"
SHORT = """
import pathlib, sys, trials

with trials.init() as trial:
    x = trial.parameters["x"]
    given = (pathlib.Path(trial.parameters["data"]) / "a.txt").read_text()
    pathlib.Path("outputs").mkdir(exist_ok=True)
    pathlib.Path("outputs/a <b>&#1?.txt").write_text(given * 2)
    for step in range(5):
        print("step", step, flush=True)
        trial.report(step=step, loss=x + 1 / (step + 1))
    trial.save_checkpoint({"step": 4}, step=4)
    if x > 0.6:
        sys.exit("the layer has no such width")
    trial.report_final(loss=x)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=SEEN_MS)
    with a_browser() as found:
        yield found


@pytest.fixture
def window(browser: Browser, shared_home: Home) -> Iterator[Window]:
    """On an experiment of which two trials run and wait for the gate."""
    with on_running_trials(browser, shared_home) as found:
        yield found


@pytest.fixture
def own_window(browser: Browser, home: Home) -> Iterator[Window]:
    """The same on a service of its own, whose nodes no other test needs."""
    with on_running_trials(browser, home) as found:
        yield found


@contextmanager
def on_running_trials(browser: Browser, home: Home) -> Iterator[Window]:
    home.begin(budget={"trials": 4, "parallel": 2})
    home.running(2, step=4)
    with a_window(browser, home) as found:
        yield found


def open_experiment(window: Window, query: str = "") -> Page:
    page = window.tab(f"/experiments/{window.home.id}{query}")
    page.get_by_role("tab", name="Overview").wait_for()
    return page


def confirm(page: Page, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def test_a_search_is_paused_resumed_stopped_and_resumed(window: Window) -> None:
    page, id_ = open_experiment(window), window.home.id
    page.get_by_role("button", name="Pause").click()
    window.until(STATUS, id_, gives=[("paused",)])
    page.get_by_role("button", name="Resume").click()
    window.until(STATUS, id_, gives=[("running",)])
    page.get_by_role("button", name="Stop", exact=True).click()
    confirm(page, "Stop")
    window.until(STATUS, id_, gives=[("stopped",)])
    page.get_by_role("button", name="Resume").click()
    window.until(STATUS, id_, gives=[("running",)])
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.parametrize(
    ("label", "entered", "field", "kept"),
    [
        ("trials at a time", "3", "parallel", 3),
        ("trials of the budget", "7", "trials", 7),
        ("duration of the budget", "2h", "duration_s", 7200),
    ],
)
def test_the_budget_is_changed_where_it_stands(
    window: Window, label: str, entered: str, field: str, kept: float
) -> None:
    page = open_experiment(window)
    page.get_by_role("button", name=re.compile(f"^{label}")).click()
    page.get_by_label(label, exact=True).fill(entered)
    page.get_by_label(label, exact=True).press("Enter")
    expect(page.get_by_label(label, exact=True)).to_have_count(0)
    ((spec,),) = window.rows("SELECT spec FROM experiments WHERE id = ?", window.home.id)
    assert json.loads(spec)["budget"][field] == kept


def test_what_makes_no_sense_is_told_at_the_field_and_changes_nothing(window: Window) -> None:
    page = open_experiment(window)
    page.get_by_role("button", name=re.compile("^trials at a time")).click()
    page.get_by_label("trials at a time", exact=True).fill("-3")
    page.get_by_label("trials at a time", exact=True).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("parallel")
    page.get_by_label("trials at a time", exact=True).press("Escape")
    expect(page.get_by_role("button", name=re.compile("^trials at a time: 2"))).to_be_visible()


def test_names_notes_tags_and_priority_are_changed(window: Window) -> None:
    page, id_ = open_experiment(window, "?tab=files"), window.home.id
    for label, entered in (("name", "another name"), ("tags", "one, two"), ("priority", "5")):
        page.get_by_role("button", name=re.compile(f"^{label}:")).click()
        page.get_by_label(label, exact=True).fill(entered)
        page.get_by_label(label, exact=True).press("Enter")
        expect(page.get_by_label(label, exact=True)).to_have_count(0)
    page.get_by_role("button", name="Write a note").click()
    page.get_by_label("note", exact=True).fill("what came out of it\n<b>text</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".note-text")).to_have_text("what came out of it\n<b>text</b>")
    ((note, tags, priority, spec),) = window.rows(
        "SELECT note, tags, priority, spec FROM experiments WHERE id = ?", id_
    )
    assert (note, json.loads(tags), priority) == ("what came out of it\n<b>text</b>", ["one", "two"], 5)
    assert json.loads(spec)["name"] == "another name"


def test_what_somebody_else_has_changed_meanwhile_is_told_before_it_is_overwritten(window: Window) -> None:
    page = open_experiment(window, "?tab=files")
    path = f"/api/v1/experiments/{window.home.id}"
    page.get_by_role("button", name="Write a note").click()
    page.get_by_label("note", exact=True).fill("mine")
    with window.home.service() as service:
        service.call("PATCH", path, body={"note": "theirs", "name": "renamed"})
    expect(page.get_by_role("heading", name="renamed")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("it has become “theirs” meanwhile")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".note-text")).to_have_text("mine")

    page.get_by_role("tab", name="Space").click()
    page.get_by_role("button", name="Change the space").click()
    page.get_by_label(re.compile("^The whole space")).fill('{"x": {"type": "float", "low": 0, "high": 0.5}}')
    with window.home.service() as service:
        narrow = {"search_space": {"x": {"type": "float", "low": 0, "high": 0.25}}}
        service.call("PUT", f"{path}/search-space", body=narrow)
    page.get_by_role("button", name="Search this space").click()
    expect(page.get_by_role("alert")).to_contain_text("the space was changed after you began")
    expect(page.locator("ins")).to_contain_text("from 0 to 0.25")
    page.get_by_role("button", name="Search this space").click()
    expect(page.locator("ins").first).to_contain_text("from 0 to 0.5")


def test_a_trial_of_ones_own_is_added_and_a_wrong_one_is_told_at_its_field(window: Window) -> None:
    page, id_ = open_experiment(window), window.home.id
    page.get_by_role("button", name="Add trial").click()
    page.get_by_label("x", exact=True).fill("7")
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("x", exact=True).fill("0.25")
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    window.until(
        "SELECT json_extract(parameters, '$.x') FROM trials WHERE experiment_id = ? AND source = 'custom'",
        id_,
        gives=[(0.25,)],
    )


def test_the_search_space_is_changed_and_its_difference_is_shown(window: Window) -> None:
    page = open_experiment(window, "?tab=space")
    page.get_by_role("button", name="Change the space").click()
    page.get_by_label(re.compile("^The whole space")).fill('{"x": {"type": "float", "low": 0, "high": 0.5}}')
    page.get_by_role("button", name="Search this space").click()
    expect(page.locator("ins")).to_contain_text("from 0 to 0.5")
    ((space,),) = window.rows(
        "SELECT search_space FROM search_space_revisions WHERE experiment_id = ? ORDER BY line DESC LIMIT 1",
        window.home.id,
    )
    assert json.loads(space)["x"]["high"] == 0.5


def test_a_running_trial_is_given_up(window: Window) -> None:
    page = window.tab(f"/experiments/{window.home.id}/trials/1")
    expect(page.get_by_role("img", name=re.compile(r"^Memory\. .*iB at most"))).to_be_visible()
    page.get_by_role("button", name="Give up").click()
    confirm(page, "Give it up")
    window.until(f"{TRIALS} LIMIT 1", window.home.id, gives=[(1, "canceled")])
    expect(page.get_by_text("a person gave it up").first).to_be_visible()


def test_a_clone_is_started_and_opened(window: Window) -> None:
    page = open_experiment(window)
    page.get_by_role("button", name=re.compile("More")).click()
    page.get_by_role("menuitem", name="Clone").click()
    page.get_by_label("Name", exact=True).fill("the clone")
    page.get_by_role("button", name="Start the clone").click()
    clone = other_experiment(page, window.home.id)
    assert window.rows("SELECT json_extract(spec, '$.name') FROM experiments WHERE id = ?", clone) == [("the clone",)]


def test_another_experiment_is_started_from_the_file_of_one(window: Window) -> None:
    page, held = window.tab(f"/experiments/{window.home.id}?tab=files"), list[Route]()
    link = page.get_by_role("link", name="Start another from it")
    link.wait_for()
    path = re.compile(f"/api/v1/experiments/{window.home.id}$")
    page.route(path, lambda route: held.append(route))  # noqa: PLW0108  # Playwright takes no builtin
    link.click()
    # Who writes into a form that is filled after that would start something else.
    expect(page.get_by_text("What it begins from")).to_be_visible()
    expect(page.get_by_role("textbox")).to_have_count(0)
    page.unroute(path)  # which goes on with those that are held
    page.get_by_label("Name", exact=True).fill("another")
    page.get_by_label("Name", exact=True).press("Tab")
    expect(page.get_by_text("It is good.")).to_be_visible()
    page.get_by_role("button", name="Start it").click()
    of_one = "SELECT json_remove(spec, '$.name', '$.seed') FROM experiments WHERE id = ?"
    assert window.rows(of_one, other_experiment(page, window.home.id)) == window.rows(of_one, window.home.id)


def other_experiment(page: Page, than: str) -> str:
    """The id of that to which the page goes."""
    page.wait_for_url(lambda url: "/experiments/" in url and than not in url)
    found = re.search(r"/experiments/([^/?#]+)", page.url)
    assert found is not None
    return found[1]


@contextmanager
def with_an_end(browser: Browser, home: Home) -> Iterator[Window]:
    (home.folder / "digits").mkdir(exist_ok=True)
    (home.folder / "digits" / "a.txt").write_text("given")
    files = {"output": "outputs", "datasets": {"data": "./digits"}}
    home.begin(SHORT, budget={"trials": 4, "parallel": 2, "failures": 20}, seed=3, trial=files)
    home.completed()
    with a_window(browser, home) as found:
        yield found


@pytest.fixture
def ended(browser: Browser, shared_home: Home) -> Iterator[Window]:
    """On an experiment that has ended; some of its trials failed."""
    with with_an_end(browser, shared_home) as found:
        yield found


@pytest.fixture
def alone(browser: Browser, home: Home) -> Iterator[Window]:
    """On a service that knows no other experiment than one that has ended."""
    with with_an_end(browser, home) as found:
        yield found


def test_failed_trials_are_tried_again_all_at_once_and_one_by_one(ended: Window) -> None:
    page, id_ = open_experiment(ended), ended.home.id
    ((failed, count),) = ended.rows(
        "SELECT min(number), count(*) FROM trials WHERE experiment_id = ? AND status = 'failed'", id_
    )
    assert count > 0, "the seed has no failed trial"
    page.get_by_role("button", name="Retry failed").click()
    retried = "SELECT count(*) FROM trials WHERE experiment_id = ? AND retry_of IS NOT NULL"
    ended.until(retried, id_, gives=[(count,)])
    page.goto(f"{ended.url}/experiments/{id_}/trials/{failed}")
    page.get_by_role("button", name="Try again").click()
    ended.until(retried, id_, gives=[(count + 1,)])
    page.wait_for_url(re.compile(r"/trials/\d+$"))


def test_why_a_trial_failed_stands_on_its_page_with_the_end_of_its_log(ended: Window) -> None:
    ((failed,),) = ended.rows(
        "SELECT min(number) FROM trials WHERE experiment_id = ? AND status = 'failed'", ended.home.id
    )
    page = ended.tab(f"/experiments/{ended.home.id}/trials/{failed}")
    expect(page.get_by_text("exit code 1: the layer has no such width", exact=True)).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("step 4")
    page.get_by_label("find in the log").fill("step 3")
    expect(page.get_by_role("log")).to_have_text("step 3")
    page.get_by_role("link", name="Journal of it").click()
    expect(page.get_by_role("listitem").filter(has_text=f"Trial {failed} failed")).to_be_visible()


def test_an_ended_experiment_is_removed_after_a_question(alone: Window) -> None:
    page = open_experiment(alone)
    page.get_by_role("button", name=re.compile("More")).click()
    page.get_by_role("menuitem", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert alone.rows("SELECT count(*) FROM experiments") == [(1,)]
    page.get_by_role("button", name=re.compile("More")).click()
    page.get_by_role("menuitem", name="Remove").click()
    confirm(page, "Remove")
    alone.until("SELECT count(*) FROM experiments", gives=[(0,)])
    expect(page.get_by_role("heading", name="No experiment yet")).to_be_visible()


def test_several_are_chosen_compared_and_removed(alone: Window) -> None:
    page = alone.tab("/")
    page.get_by_role("checkbox", name="choose faults").check()
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("columnheader", name="faults")).to_be_visible()
    page.go_back()
    page.get_by_role("checkbox", name="choose faults").check()
    page.get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    alone.until("SELECT count(*) FROM experiments", gives=[(0,)])


def test_a_new_experiment_is_written_in_the_form_and_in_the_text_and_started(ended: Window) -> None:
    page = ended.tab("/new")
    text = page.get_by_label("The same as the experiment file")
    expect(text).to_have_value(re.compile("my-search"))
    page.get_by_label("Name", exact=True).fill("from the page")
    page.get_by_label("Name", exact=True).press("Tab")
    expect(text).to_have_value(re.compile("name: from the page"))
    page.get_by_label("Trials", exact=True).fill("0")
    page.get_by_label("Trials", exact=True).press("Tab")
    expect(page.get_by_role("list", name="mistakes")).to_contain_text("/budget/trials")
    expect(page.get_by_role("button", name="Start it")).to_be_disabled()
    page.route("**/api/v1/experiments?dry_run=true", lambda route: route.abort())
    page.get_by_label("Trials", exact=True).fill("2")
    page.get_by_label("Trials", exact=True).press("Tab")
    expect(page.get_by_role("list", name="mistakes")).to_contain_text("this is looked at again by itself")
    page.unroute("**/api/v1/experiments?dry_run=true")
    expect(page.get_by_text("It is good.")).to_be_visible()
    page.get_by_role("button", name="Start it").click()
    page.wait_for_url(re.compile("/experiments/"))
    named = "SELECT json_extract(spec, '$.budget.trials') FROM experiments WHERE json_extract(spec, '$.name') = ?"
    assert ended.rows(named, "from the page") == [(2,)]


def test_what_was_written_and_not_started_outlives_a_reload_and_the_session(
    browser: Browser, shared_home: Home
) -> None:
    shared_home.begin()  # starts the service, where this is the first test of the file
    with a_window(browser, shared_home) as window:
        page = window.tab("/new")
        text, kept = page.get_by_label("The same as the experiment file"), re.compile("name: half written")
        expect(text).to_have_value(re.compile("my-search"))
        text.fill("name: half written\nbudget: {")
        page.reload()
        expect(text).to_have_value(kept)
        sign_in_again(page, shared_home)
        expect(text).to_have_value(kept)
        page.get_by_role("button", name="Begin anew").click()
        expect(text).to_have_value(re.compile("my-search"))
        page.reload()
        expect(text).to_have_value(re.compile("my-search"))


def sign_in_again(page: Page, home: Home) -> None:
    """After every session was ended from elsewhere."""
    with home.service() as service:
        service.call("DELETE", "/api/v1/sessions")
    page.get_by_label(re.compile("Or paste a token")).fill((home.home / "token").read_text().strip())
    page.get_by_role("button", name="Sign in").click()


def test_what_was_written_of_an_experiment_and_not_sent_outlives_the_session(window: Window) -> None:
    page, home = open_experiment(window, "?tab=space"), window.home
    page.get_by_role("button", name="Change the space").click()
    space = page.get_by_label(re.compile("The whole space"))
    space.fill('{"x": {"type"')
    sign_in_again(page, home)
    expect(space).to_have_value('{"x": {"type"')
    page.get_by_role("button", name="Cancel").click()

    page.get_by_role("button", name="Add trial").click()
    page.get_by_label("x", exact=True).fill("0.123")
    sign_in_again(page, home)
    page.get_by_role("button", name="Add trial").click()
    expect(page.get_by_label("x", exact=True)).to_have_value("0.123")
    expect(page.get_by_text("This is what you had written here")).to_be_visible()
    confirm(page, "Cancel")
    page.get_by_role("button", name="Add trial").click()
    expect(page.get_by_label("x", exact=True)).not_to_have_value("0.123")
    confirm(page, "Cancel")
    page.reload()
    expect(page.get_by_role("button", name="Change the space")).to_be_visible()


def test_quota_groups_are_made_changed_and_removed(ended: Window) -> None:
    page = ended.tab("/cluster")
    page.get_by_label("name of a new group").fill("research")
    page.get_by_role("button", name="Add a group").click()
    groups = "SELECT name, gpus, borrows FROM quota_groups WHERE name = 'research'"
    ended.until(groups, gives=[("research", 1, 1)])
    page.get_by_role("checkbox", name="research borrows").uncheck()
    ended.until(groups, gives=[("research", 1, 0)])
    page.get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    ended.until(groups, gives=[])


def test_plots_and_data_are_taken_away_as_files(ended: Window) -> None:
    page = open_experiment(ended)
    for item, suffix, begins in (
        ("Picture (PNG)", ".png", b"\x89PNG"),
        ("Drawing (SVG)", ".svg", b"<svg "),
        ("Data (CSV)", ".csv", b"number,status,loss"),
    ):
        page.get_by_role("button", name=re.compile("^Save loss of every trial")).click()
        with page.expect_download() as taken:
            page.get_by_role("menuitem", name=item).click()
        assert taken.value.suggested_filename == f"history{suffix}"
        assert taken.value.path().read_bytes().startswith(begins)
    page.get_by_role("tab", name="Trials").click()
    page.get_by_role("button", name=re.compile("Export")).click()
    with page.expect_download() as taken:
        page.get_by_role("menuitem", name="CSV", exact=True).click()
    assert taken.value.path().read_text().startswith("number,")


def test_what_a_trial_was_given_and_what_it_left_stand_on_its_page_and_are_taken_away(ended: Window) -> None:
    ((number,),) = ended.rows(
        "SELECT min(number) FROM trials WHERE experiment_id = ? AND status = 'succeeded'", ended.home.id
    )
    page = ended.tab(f"/experiments/{ended.home.id}/trials/{number}")
    given = ended.home.trial(number)["inputs"]["data"]
    expect(page.get_by_role("row", name="data")).to_contain_text(given)
    left = page.get_by_role("region", name="Output")
    expect(left).to_contain_text("1 file")
    with page.expect_download() as taken:
        left.get_by_role("row", name="a <b>&#1?.txt").get_by_role("button", name="Download").click()
    assert taken.value.path().read_text() == "givengiven"
    checkpoints = page.get_by_role("region", name="1 checkpoint")
    expect(checkpoints.get_by_role("row")).to_have_count(2)


# Presses whatever can be pressed, what comes up by that too, and says yes to every question; a test sees what is sent.
# Tabs and counts lead to other parts of the page, and would take the rest away.
PRESS_EVERYTHING = """async () => {
    const able = "main :is(button, input[type=checkbox]):not(:disabled, [role=tab], .count, .tag)";
    const pressed = new Set();
    while (pressed.size < 150) {
        const one = [...document.querySelectorAll(able)].find((found) => !pressed.has(found));
        if (!one) break;
        pressed.add(one);
        one.click();
        await new Promise((resolve) => setTimeout(resolve));
        document.querySelector("dialog[open] .dialog-actions button:last-child")?.click();
    }
    return pressed.size;
}"""


def test_who_may_only_read_is_offered_nothing_that_is_refused(window: Window) -> None:
    """On an experiment that runs, and then on the same one when it has ended."""
    token = (window.home.home / "token-read-only").read_text().strip()
    assert window.context.browser is not None
    with closing(window.context.browser.new_context()) as context:
        page = context.new_page()
        page.goto(window.url)
        page.get_by_label(re.compile("Or paste a token")).fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("read only", exact=True)).to_be_visible()
        sent: list[str] = []
        page.on("request", lambda asked: sent.append(f"{asked.method} {asked.url}") if asked.method != "GET" else None)
        one = f"/experiments/{window.home.id}"
        tabs = [f"{one}?tab={tab}" for tab in ("overview", "space", "files")]
        pressed = 0
        for has_ended in (False, True):
            if has_ended:
                window.home.open_gate()
                window.until(STATUS, window.home.id, gives=[("completed",)])
            for path in ("/", *tabs, f"{one}/trials/1", "/cluster"):
                page.goto(window.url + path)
                page.locator("main :is(h1, h2)").first.wait_for()
                expect(page.locator(".loading")).to_have_count(0)
                expect(page.get_by_text("read only", exact=True)).to_be_visible()
                pressed += page.evaluate(PRESS_EVERYTHING)
        assert (sent, pressed > 60) == ([], True)
        page.goto(f"{window.url}/new?from={window.home.id}")
        expect(page.get_by_role("heading", name="Starting experiments is not for this token")).to_be_visible()


def test_a_token_is_made_on_the_page_signs_a_browser_in_and_is_revoked(alone: Window) -> None:
    page = alone.tab("/cluster")
    page.get_by_label("name of a new token").fill("ann")
    page.get_by_label("what the new token may").select_option("read_only")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator(".made code").inner_text()
    tokens = "SELECT role, made_by LIKE 'home (session %', revoked_at IS NULL FROM tokens WHERE name = 'ann'"
    alone.until(tokens, gives=[("read_only", 1, 1)])

    other = alone.context.browser.new_context()  # type: ignore[union-attr]
    reader = other.new_page()
    reader.goto(alone.url + "/cluster")
    reader.get_by_label(re.compile("Or paste a token")).fill(token)
    reader.get_by_role("button", name="Sign in").click()
    expect(reader.get_by_text("read only", exact=True)).to_be_visible()
    expect(reader.get_by_role("heading", name="Who may come in")).to_have_count(0)
    sessions = "SELECT count(*) FROM sessions"
    assert alone.rows(sessions) == [(2,)]

    page.get_by_role("row", name=re.compile("^ann ")).get_by_role("button", name="Revoke").click()
    confirm(page, "Revoke")
    alone.until(tokens, gives=[("read_only", 1, 0)])
    expect(reader.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(reader).to_have_title("Sign in · Tuner")
    other.close()


def test_whoever_is_signed_in_signs_out_in_every_tab_and_another_is_who_all_of_them_show(alone: Window) -> None:
    page, other = alone.tab("/cluster"), alone.tab("/")
    expect(other.get_by_title(re.compile("live$"))).to_be_visible()
    page.get_by_role("button", name=re.compile("may do everything")).click()
    page.get_by_role("menuitem", name="Sign out").click()
    for tab in (page, other):
        expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
    assert alone.rows("SELECT count(*) FROM sessions") == [(0,)]
    page.get_by_label(re.compile("Or paste a token")).fill((alone.home.home / "token-read-only").read_text().strip())
    page.get_by_role("button", name="Sign in").click()
    for tab in (page, other):
        expect(tab.get_by_text("read only", exact=True)).to_be_visible()
    alone.sign_in()  # as an admin, by a code, in a third tab
    for tab in (page, other):
        expect(tab.get_by_role("button", name=re.compile("may do everything"))).to_be_visible()


def test_metrics_of_an_ended_experiment_are_archived_and_come_back(ended: Window) -> None:
    page = open_experiment(ended)
    reports = "SELECT count(*) FROM metrics WHERE experiment_id = ?"
    there = ended.rows(reports, ended.home.id)
    page.get_by_role("button", name=re.compile("^More")).click()
    page.get_by_role("menuitem", name="Archive the metrics").click()
    expect(page.get_by_text("Its metrics are archived")).to_be_visible()
    assert ended.rows(reports, ended.home.id) == [(0,)]
    trial = ended.tab(f"/experiments/{ended.home.id}/trials/1")
    expect(trial.get_by_text("Its metrics are archived")).to_be_visible()
    trial.get_by_role("button", name="Bring them back").click()
    ended.until(reports, ended.home.id, gives=there)
    expect(page.get_by_text("Its metrics are")).to_have_count(0)


def test_a_node_is_drained_removed_and_takes_trials_again(own_window: Window) -> None:
    window = own_window
    page = window.tab("/cluster")
    node = page.get_by_role("article", name="node local")
    node.get_by_role("button", name="Drain").click()
    confirm(page, "Drain")
    expect(node.get_by_text(re.compile("^(draining|drained)$"))).to_be_visible()
    window.until(HELD, window.home.id, gives=[(0,)])
    node.get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    expect(page.get_by_text("local is removed")).to_be_visible()
    with window.home.service() as service:
        wait_until(service.agents)  # its agent lives, and connects anew
    node.get_by_role("button", name="Take trials again").click()
    expect(node.get_by_text("ready", exact=True)).to_be_visible()
    window.home.open_gate()
    window.until(STATUS, window.home.id, gives=[("completed",)])


def resources_of(samples: list[dict[str, Any]]) -> dict[str, Any]:
    rest = {"processor_s": 1.0, "processes": 1}
    return {"attempt": 1, "node": 0, "ended": True, "samples": [one | rest for one in samples]}


def test_parts_of_a_trial_and_nodes_on_demand_stand_with_their_reasons(ended: Window) -> None:
    """The answers are those of the API with what only a cluster of machines would bring about."""
    page = ended.context.new_page()

    def with_parts(route: Route) -> None:
        body = route.fetch().json()
        exit_ = body["attempt_details"][0]["exit"] | {"code": 1, "tail": "RuntimeError: the link is down"}
        part = {"node": 0, "agent": "near", "host": "rack-1", "boot_id": "b", "pid": 7, "state": "ended"}
        told = {**part, "exit": exit_ | {"code": 0, "stop_reason": "another node ended"}, "ended_at": None}
        failed = {**part, "node": 1, "agent": "far", "host": "rack-2", "exit": exit_, "ended_at": None}
        body["attempt_details"][0]["nodes"] = [told, failed]
        route.fulfill(json=body)

    page.route(re.compile("/trials/[^/]+/1$"), with_parts)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/logs?" in request.url else None)
    page.route("**/resources?attempt=1&node=1", lambda route: route.fulfill(json=resources_of([])))
    used = [{"at_s": 60.0 * minute, "memory_bytes": minute << 26, "cores": 1.5} for minute in (1, 2, 4)]
    page.route("**/resources?attempt=1", lambda route: route.fulfill(json=resources_of(used)))
    page.goto(f"{ended.url}/experiments/{ended.home.id}/trials/1")
    parts = page.get_by_role("table", name="nodes of attempt 1")
    expect(
        parts.get_by_role("row", name=re.compile("rack-1.*stopped as it was told: another node ended"))
    ).to_be_visible()
    expect(
        parts.get_by_role("row", name=re.compile("rack-2.*exit code 1: RuntimeError: the link is down"))
    ).to_be_visible()
    expect(page.get_by_label("the node whose log is shown")).to_have_value("1")  # whose fault it was
    assert any("node=1" in url for url in asked)
    expect(page.get_by_text("Nothing was measured: it is looked at after its first second.")).to_be_visible()
    page.get_by_label("the node whose log is shown").select_option("0")
    for words in ("Memory. 3 samples over 4 min, 256 MiB at most.", "Cores in use. 3 samples over 4 min, 1.5 cores"):
        expect(page.get_by_role("img", name=words)).to_be_visible()

    executor = {"name": "ray", "address": "10.0.0.1:6379", "state": "the cluster does not answer", "namespace": "n"}
    node = {"agent": "ray-1", "host": "", "ray_node": "", "state": "pending", "reason": "no node has 8 GPUs free"}
    shown = executor | {"bridge_pid": None, "bundle": {}, "min": 0, "max": 4, "wanted": 2, "resources": {"GPU": 8}}
    items = [
        shown
        | {"nodes": [node | {"busy": False, "cpus": 8}], "lost": [{"agent": "ray-0", "reason": "its machine is gone"}]}
    ]
    page.route("**/executors", lambda route: route.fulfill(json={"items": items, "next": None}))
    page.goto(f"{ended.url}/cluster")
    for words in ("the cluster does not answer", "no node has 8 GPUs free", "1 node, 2 wanted", "1 node lost lately"):
        expect(page.get_by_text(words)).to_be_visible()
    page.close()


def test_a_node_that_is_away_is_removed_with_what_ran_there(ended: Window) -> None:
    """The node is one that only the answer of the API has, so that none of the others' trials runs there."""
    page = ended.context.new_page()
    nothing = {"host": "", "user": "", "python": "", "pid": 0, "cpus": 0, "memory_bytes": 0, "devices": 0, "labels": {}}
    away = nothing | {"id": "far away", "state": "away", "message": "it is not connected", "joined": False, "notes": []}
    away |= {"clock_ahead_s": 0.0, "free_bytes": None, "connected_at": None, "trials": [f"{ended.home.id}/1"]}
    page.route("**/api/v1/agents", lambda route: route.fulfill(json={"items": [away], "next": None}))
    page.goto(f"{ended.url}/cluster")
    node = page.get_by_role("article", name="node far away")
    expect(page.get_by_role("heading", name="1 node, 1 away")).to_be_visible()
    expect(node).not_to_contain_text(re.compile("core|memory|no GPU|of the service|Python"))  # of which nobody knows
    expect(node.get_by_role("button", name="Drain")).to_have_count(0)
    node.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("dialog")).to_contain_text("What ran there (1 trial) is lost there")
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as told:
        confirm(page, "Remove")
    assert told.value.url.endswith("/api/v1/agents/far%20away?force=true")
    assert told.value.status == 404, "the service itself knows no such node"
    expect(page.get_by_text("there is no agent 'far away'")).to_be_visible()
