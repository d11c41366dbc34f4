"""The dashboard as it is seen: accessible in light and dark, hostile content as text, live, and there after a crash."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.harness import Home
from tests.browser import SEEN_MS, Window, a_browser, a_window, violations
from tests.waiting import wait_until

EVIL = '<img src=x onerror="alert(1)">'
SCRIPT = """
import sys, trials

with trials.init() as trial:
    value = next(iter(trial.parameters.values()))
    print("<script>alert('log')</script> \\x1b[31m", flush=True)
    for step in range(5):
        trial.report(step=step, loss=value + 1 / (step + 1))
    if value > 0.6:
        sys.exit("<b>failed</b>")
    trial.report_final(loss=value)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, shared_place: Path) -> Home:
    """An experiment that has ended, every text of which is somebody's markup."""
    expect.set_options(timeout=SEEN_MS)
    home = Home(folder=tmp_path_factory.mktemp("hostile"), place=shared_place)
    home.begin(
        SCRIPT,
        name=f"{EVIL} {'n' * 120}",
        search_space={EVIL: {"type": "float", "low": 0, "high": 1}, "p" * 150: {"type": "int", "low": 1, "high": 9}}
        | {f"more.{i}": {"type": "float", "low": 0, "high": 1} for i in range(30)},
        budget={"trials": 12, "parallel": 2, "failures": 20},
    )
    with home.service() as service:
        service.change(home.id, {"note": f"{EVIL}<script>alert('note')</script>", "tags": [EVIL, "<b>tag</b>"]})
    home.completed()
    return home


def pages_of(id_: str) -> list[str]:
    tabs = ("", "?tab=trials", "?tab=timeline", "?tab=space", "?tab=journal&all=1", "?tab=files", "?slices=all")
    experiment = [f"/experiments/{id_}{tab}" for tab in tabs]
    compared = [f"/compare?ids={id_}", f"/compare?trials={id_}/1,{id_}/2"]
    return ["/", *experiment, f"/experiments/{id_}/trials/1", *compared, "/cluster", "/new", f"/new?from={id_}"]


def settled(page: Page) -> None:
    page.locator("main h1, main h2").first.wait_for()
    expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(browser: Browser, hostile: Home, scheme: str) -> None:
    with a_window(browser, hostile, color_scheme=scheme) as window:
        page = window.tab()
        found = []
        for path in pages_of(hostile.id):
            page.goto(window.url + path)
            settled(page)
            found += [f"{path}: {fault}" for fault in violations(page)]

        assert not found, "\n".join(found)


def test_signing_in_is_accessible_and_a_wrong_token_is_told(browser: Browser, hostile: Home) -> None:
    context = browser.new_context()
    window = Window(home=hostile, context=context)
    page = window.tab("/")
    page.get_by_role("heading", name="Sign in").wait_for()
    assert violations(page) == []
    page.get_by_label(re.compile("paste a token")).fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label(re.compile("paste a token")).fill((hostile.home / "token").read_text().strip())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
    context.close()


def test_hostile_texts_are_text_everywhere_and_narrow_screens_scroll_in_one_direction(
    browser: Browser, hostile: Home
) -> None:
    with a_window(browser, hostile) as window:  # a dialog or a script that runs would be a fault of it
        page = window.tab()
        page.set_viewport_size({"width": 320, "height": 844})  # a phone, or a window of 1280 that is zoomed to 400 %
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for path in pages_of(hostile.id):
            page.goto(window.url + path)
            settled(page)
            assert page.locator("main img, main script, main b").count() == 0, path
            wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wider <= 0, f"{path} is {wider} pixels wider than the screen"
        elsewhere = [url for url in asked if not url.startswith((window.url, "blob:"))]

        assert elsewhere == []


@pytest.mark.parametrize("width", [1280, 320])
def test_every_menu_opens_within_the_screen(browser: Browser, hostile: Home, width: int) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab(f"/experiments/{hostile.id}?tab=trials")
        page.set_viewport_size({"width": width, "height": 844})
        for path in (f"/experiments/{hostile.id}?tab=trials", f"/experiments/{hostile.id}"):
            page.goto(window.url + path)
            settled(page)
            expect(page.get_by_role("button", name=re.compile("may do everything"))).to_be_visible()
            buttons = page.locator("[aria-haspopup=menu]")
            assert buttons.count() > 3, path
            for button in buttons.all():
                button.click()
                box = page.get_by_role("menu").bounding_box()
                assert box is not None
                assert box["x"] >= 0, button.get_attribute("title")
                assert box["x"] + box["width"] <= width, button.get_attribute("title")
                page.keyboard.press("Escape")


def test_a_filter_holds_for_table_and_plots_and_stands_in_the_address(browser: Browser, hostile: Home) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab(f"/experiments/{hostile.id}?tab=trials")
        page.get_by_label("filter trials").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("status = failed")
        rows = page.get_by_role("table", name="Trials").locator("[data-row]")
        expect(rows.filter(has_text="succeeded")).to_have_count(0)
        ((failed,),) = window.rows(
            "SELECT count(*) FROM trials WHERE status = 'failed' AND experiment_id = ?", hostile.id
        )
        expect(page.get_by_role("status").filter(has_text=f"{failed} trial")).to_be_visible()
        again = window.tab(page.url.removeprefix(window.url))
        expect(again.get_by_label("filter trials")).to_have_value("status = failed")
        again.get_by_label("filter trials").fill("lr <")
        expect(again.get_by_role("alert")).to_contain_text("a value is missing")


def test_an_address_that_is_none_says_so_on_the_page_and_leads_back(browser: Browser, hostile: Home) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab("/nothing/here")
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
        page.get_by_role("main").get_by_role("link", name="experiments").click()
        expect(page.get_by_role("heading", name="Experiments")).to_be_visible()


def test_a_service_in_trouble_says_on_every_page_which_part_that_is(browser: Browser, hostile: Home) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab()
        told = {"ready": False, "role": "active", "parts": {"dispatcher": "ok", "database": "the disk is full"}}
        page.route("**/readyz", lambda route: route.fulfill(status=503, json=told))
        for path in ("/", f"/experiments/{hostile.id}", "/new"):
            page.goto(window.url + path)
            expect(page.get_by_role("alert")).to_contain_text("The service is in trouble: database: the disk is full")


def test_trials_that_cannot_be_read_say_so_and_a_journal_has_no_page_past_its_end(
    browser: Browser, hostile: Home
) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab()
        busy = {"title": "Service Unavailable", "status": 503, "detail": "the history is being read"}
        page.route(re.compile("/table"), lambda route: route.fulfill(status=503, json=busy))
        page.route(re.compile("/curves"), lambda route: route.fulfill(status=503, json=busy))
        for tab in ("overview", "trials"):
            page.goto(f"{window.url}/experiments/{hostile.id}?tab={tab}")
            expect(page.get_by_role("alert")).to_contain_text(busy["detail"])
        page.unroute(re.compile("/table"))
        page.get_by_role("button", name="Try again").click()
        page.locator("[data-row]").first.wait_for()
        page.get_by_role("tab", name="Overview").click()
        expect(page.get_by_role("alert")).to_contain_text(busy["detail"])  # of the curves alone
        page.goto(f"{window.url}/experiments/{hostile.id}?tab=journal&from=100000")
        page.locator(".journal li").first.wait_for()
        page.get_by_label("filter the journal").fill("trial 1")
        page.locator(".journal li").first.wait_for()
        assert "from=" not in page.url


def test_a_menu_that_a_key_opens_is_walked_and_left_by_keys(browser: Browser, hostile: Home) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab(f"/experiments/{hostile.id}?tab=trials")
        button, items = page.get_by_role("button", name=re.compile("More")), page.get_by_role("menuitem")
        button.press("Enter")
        expect(items.nth(0)).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(items.nth(1)).to_be_focused()
        page.keyboard.press("Escape")
        expect(button).to_be_focused()
        expect(items).to_have_count(0)
        button.press("Enter")
        page.keyboard.press("Enter")  # Clone
        page.get_by_role("dialog").get_by_role("button", name="Cancel").press("Enter")
        expect(button).to_be_focused()


def test_keys_walk_the_rows_and_open_one(browser: Browser, hostile: Home) -> None:
    with a_window(browser, hostile) as window:
        page = window.tab(f"/experiments/{hostile.id}?tab=trials&sort=number")
        page.locator("[data-row]").first.wait_for()
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Trial 1", exact=True)).to_be_visible()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def with_two_that_run(home: Home) -> Home:
    """Two trials wait for the gate."""
    expect.set_options(timeout=SEEN_MS)
    home.begin(budget={"trials": 4, "parallel": 2})
    home.running(2, step=4)
    return home


@pytest.fixture
def running(shared_home: Home) -> Home:
    return with_two_that_run(shared_home)


@pytest.fixture
def running_alone(home: Home) -> Home:
    """On a service that may be killed."""
    return with_two_that_run(home)


def test_what_happens_on_the_service_is_seen_without_a_reload(browser: Browser, running: Home) -> None:
    with a_window(browser, running) as window:
        page = window.tab(f"/experiments/{running.id}")
        expect(page.get_by_title(re.compile("live$"))).to_be_visible()
        page.evaluate("window.kept = true")
        running.open_gate()
        expect(page.locator(".experiment-head .badge.completed").first).to_be_visible()
        expect(page.get_by_role("button", name="4 succeeded")).to_be_visible()
        assert page.evaluate("window.kept") is True


def test_what_runs_says_what_it_has_reached_and_when_it_said_so(browser: Browser, running: Home) -> None:
    with a_window(browser, running) as window:
        page = window.tab(f"/experiments/{running.id}?tab=trials&sort=-value")
        rows = page.get_by_role("row", name=re.compile("^trial "))
        for row in (rows.nth(0), rows.nth(1)):
            expect(row).to_contain_text(re.compile("running.* so far.*(ago|just now)"))
        page.get_by_role("row", name="trial 1", exact=True).get_by_role("link").click()
        expect(page.get_by_text(re.compile("^Last report(just now|\\d+ s ago)$"))).to_be_visible()


def test_an_experiment_says_which_of_its_trials_are_on_nodes_that_are_not_connected(
    browser: Browser, running: Home
) -> None:
    with a_window(browser, running) as window:
        page = window.tab(f"/experiments/{running.id}")
        away = {"id": "n1", "state": "away", "trials": [f"{running.id}/1", "other/1"]}
        page.route("**/api/v1/agents", lambda route: route.fulfill(json={"items": [away], "next": None}))
        page.clock.install()
        page.reload()
        page.get_by_role("tab", name="Overview").wait_for()
        told = page.get_by_text("Nobody hears from 1 trial on n1")

        def is_told() -> bool:
            page.clock.fast_forward(10_000)
            return told.is_visible()

        wait_until(is_told)


def test_what_auto_chose_stands_with_its_reason_under_the_name(browser: Browser, shared_home: Home) -> None:
    expect.set_options(timeout=SEEN_MS)
    shared_home.begin(budget={"trials": 4, "parallel": 1}, tuner="auto")
    reason = shared_home.show()["chosen"]["tuner"].partition("; now")[0]
    with a_window(browser, shared_home) as window:
        page = window.tab(f"/experiments/{shared_home.id}")
        expect(page.get_by_text(f"Chosen for it: tuner: {reason}")).to_be_visible()


def test_eight_tabs_share_one_stream(browser: Browser, running: Home) -> None:
    with a_window(browser, running) as window:
        streams: list[str] = []
        window.context.on("request", lambda asked: streams.append(asked.url) if asked.url.endswith("/events") else None)
        tabs = [window.tab(f"/experiments/{running.id}") for _ in range(8)]
        for tab in tabs:
            expect(tab.get_by_title(re.compile("live$"))).to_be_visible()
        assert len(streams) == 1
        tabs[0].close()  # whoever reads for the others goes: the next one does
        running.open_gate()
        for tab in tabs[1:]:
            expect(tab.get_by_role("button", name="4 succeeded")).to_be_visible()


def test_a_service_that_is_killed_and_started_again_is_followed_by_an_open_page(
    browser: Browser, running_alone: Home
) -> None:
    running = running_alone
    with a_window(browser, running) as window:
        page = window.tab(f"/experiments/{running.id}")
        expect(page.get_by_title(re.compile("live$"))).to_be_visible()
        port = window.url.rpartition(":")[2]
        os.kill(running.one("service"), signal.SIGKILL)
        expect(page.get_by_text("The service does not answer").first).to_be_visible()
        running.open_gate()
        running.environment["TUNER_PORT"] = port
        running.serve()
        wait_until(lambda: running.show()["status"] == "completed")
        assert window.url.endswith(port)
        expect(page.get_by_text("The service is back")).to_be_visible()
        expect(page.get_by_role("button", name="4 succeeded")).to_be_visible()
        page.get_by_role("tab", name="Trials").click()
        expect(page.get_by_role("table", name="Trials").locator("[data-row]")).to_have_count(4)
