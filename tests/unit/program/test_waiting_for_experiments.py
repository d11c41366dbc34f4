"""Waiting: how often it looks, what is shown, what becomes of a service that does not answer."""

from __future__ import annotations

import json
import math
import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tuner_service import ExperimentFailedError, UnreachableError, WaitTimeoutError
from tuner_service.cli.listening import QUIET_S
from tuner_service.config import Settings
from tuner_service.program import display, lines
from tuner_service.program.display import bar, share_of, table_html
from tuner_service.program.lines import Line, settings_for
from tuner_service.program.reading import is_unfinished
from tuner_service.program.waiting import ABSENCE_S, Following, Stopping


def a_view(**fields: Any) -> dict[str, Any]:
    budget = {"trials": 4, "parallel": 1, "duration": None, "failures": 10}
    view = {
        "id": "8f3k2", "name": "digits", "status": "running", "reason": "none", "message": "", "detail": "",
        "counts": {"succeeded": 1, "running": 1}, "budget": budget, "running_s": 2.0,
        "objective": {"metric": "loss", "goal": "minimize"},
        "best": {"number": 1, "value": 0.5, "parameters": {"lr": 0.1}},
        "running": [{"number": 2, "status": "running", "step": 3, "value": 0.75}],
    }  # fmt: skip
    return view | fields


class FakeLine:
    """Answers with ``views``, one after the other; an error among them is raised."""

    def __init__(self, *views: Any, killed: bool = False, url: str = "") -> None:
        self.views, self.killed, self.started = list(views), killed, 0
        self.settings = Settings(home=Path("/home"), db="sqlite://", url=url)

    def call(self, do: Any) -> Any:
        view = self.views.pop(0)
        if isinstance(view, Exception):
            raise view
        return view

    def was_killed(self) -> bool:
        return self.killed

    def connect(self, *, start: bool) -> None:
        assert start
        self.started += 1

    @property
    def url(self) -> str:
        return self.settings.url or "http://127.0.0.1:8765"


def followed(line: FakeLine, *, progress: bool | None = False) -> Following:
    following = Following(a_view(), timeout_s=None, progress=progress)
    while following.next_look_s() is not None:
        following.show(following.look(line))  # type: ignore[arg-type]  # as much of a line as is asked
    return following


def test_it_looks_at_least_once_and_ends_when_the_experiment_has() -> None:
    line = FakeLine(a_view(), a_view(status="completed"))

    assert followed(line).view["status"] == "completed"
    assert line.views == []


def test_it_looks_less_often_the_longer_it_takes() -> None:
    following = Following(a_view(), timeout_s=None, progress=False)
    pauses = [following.next_look_s() or 0.0 for _ in range(20)]

    assert pauses[0] < 0.1
    assert pauses[-1] == 0.5


def test_who_hears_of_changes_looks_seldom() -> None:
    following = Following(a_view(), timeout_s=None, progress=False)

    assert [following.next_look_s(hears=True) for _ in range(3)] == [QUIET_S] * 3


def test_a_service_that_was_killed_is_started_again_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        line = FakeLine(UnreachableError("gone"), a_view(status="completed"), killed=True)

        assert followed(line, progress=progress).view["status"] == "completed"
        assert line.started == 1
    assert capsys.readouterr().err.splitlines() == [
        "the service of /home was killed; it is started again",
        "it runs at http://127.0.0.1:8765, and what was running goes on where it was",
    ]


def test_a_service_elsewhere_that_is_away_for_a_while_is_waited_for_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = FakeLine(*[UnreachableError("gone")] * 3, a_view(status="completed"), url="http://gpu-box:8000")

    assert followed(line, progress=None).view["status"] == "completed"
    assert capsys.readouterr().err.splitlines() == [
        "no service answers at http://gpu-box:8000; waiting for it, 60 s at most",
        "http://gpu-box:8000 answers again",
    ]


def test_a_service_that_was_ended_on_purpose_stays_ended() -> None:
    with pytest.raises(UnreachableError, match="gone"):
        followed(FakeLine(UnreachableError("gone")))


def test_a_service_elsewhere_is_waited_for_one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, ABSENCE_S - 1, ABSENCE_S + 1])
    monkeypatch.setattr("tuner_service.program.waiting.time.monotonic", lambda: next(moments))
    line = FakeLine(*[UnreachableError("gone")] * 3, url="http://gpu-box:8000")

    with pytest.raises(UnreachableError, match="gone"):
        followed(line)
    assert line.views == []


def test_it_gives_up_when_the_time_is_over_and_says_that_the_search_goes_on() -> None:
    with pytest.raises(WaitTimeoutError, match="8f3k2 is running after 0 s, and goes on"):
        Following(a_view(), timeout_s=0.0, progress=False).next_look_s()
    with pytest.raises(TimeoutError):
        Stopping(a_view(status="stopping"), timeout_s=0.0).next_look_s()


@pytest.mark.parametrize("forever", [10**400, math.inf, Fraction(10**400)])
def test_longer_than_a_float_can_say_is_without_limit(forever: Any) -> None:
    assert Stopping(a_view(status="stopping"), timeout_s=forever).next_look_s(hears=True) == QUIET_S


@pytest.mark.parametrize("over", [-1, -math.inf, -(10**400), Fraction(0)])
def test_a_time_that_is_over_already_is_over(over: Any) -> None:
    with pytest.raises(WaitTimeoutError, match="and goes on"):
        Stopping(a_view(status="stopping"), timeout_s=over).next_look_s()


def test_a_failure_is_told_with_the_first_error() -> None:
    attempt = {"exit": {"tail": "ZeroDivisionError: division by zero"}}
    trial = {"id": "8f3k2/1", "reason": "exit_code", "message": "exit code 1", "attempt_details": [attempt]}
    view = a_view(status="failed", reason="too_many_failures", message="4 trials failed", counts={"failed": 4})
    following = Following(view, timeout_s=None, progress=False)

    failure = following.failure(FakeLine({"number": 1}, trial))  # type: ignore[arg-type]  # as above
    with pytest.raises(
        ExperimentFailedError, match=r"4 trials failed[^|]*trial 8f3k2/1 failed[^|]*. ZeroDivisionError"
    ):
        following.raise_failure(failure)


def test_being_stopped_is_no_failure() -> None:
    following = Following(a_view(status="stopped"), timeout_s=None, progress=False)

    assert following.failure(FakeLine()) == ""  # type: ignore[arg-type]  # as above
    following.raise_failure("")


@pytest.mark.parametrize(
    ("status", "reason", "by_itself", "all_of_them"),
    [
        ("running", "none", False, False), ("completed", "none", False, False), ("failed", "too_many", True, True),
        ("paused", "algorithm_failed", True, True), ("paused", "requested", False, True),
        ("stopped", "requested", False, True),
    ],
)  # fmt: skip
def test_unfinished_is_what_nobody_ended_on_purpose(
    status: str, reason: str, by_itself: bool, all_of_them: bool
) -> None:
    view = a_view(status=status, reason=reason)

    assert is_unfinished(view, include_stopped=False) is by_itself
    assert is_unfinished(view, include_stopped=True) is all_of_them


# ── what is shown ───────────────────────────────────────────────────────────────────────────────
def test_the_bar_is_as_long_as_what_is_used_up() -> None:
    assert share_of(a_view()) == 0.25
    assert bar(0.25) == "▕██████                  ▏ 25%"
    assert bar(1.0) == "▕████████████████████████▏100%"
    assert bar(None) == ""
    by_time = a_view(budget={"trials": None, "duration": 8.0})
    assert share_of(by_time) == 0.25
    assert share_of(a_view(budget={"trials": None, "duration": None})) is None


def test_the_table_of_a_notebook_shows_the_best_and_what_runs() -> None:
    drawn = table_html(a_view())

    assert '<progress value="0.2500"' in drawn
    assert "<td>best</td><td>1</td><td>0.5</td><td></td><td>lr=0.1</td>" in drawn
    assert "<td>running</td><td>2</td><td>0.75</td><td>3</td>" in drawn


def test_what_a_trial_says_of_itself_is_text_in_the_table() -> None:
    hostile = "<script>alert(1)</script>"
    view = a_view(name=hostile, status="failed", message=hostile, objective={"metric": hostile, "goal": "minimize"})
    view["best"]["parameters"] = {hostile: hostile}

    assert "<script" not in table_html(view)
    assert table_html(a_view(best=None, running=[], counts={})).count("<table>") == 0


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        shown = display.display_for(progress)
        shown.show(a_view())
        shown.close()
    assert capsys.readouterr().err == ""

    lines = display.display_for(True)
    lines.show(a_view())
    lines.show(a_view(status="completed", counts={"succeeded": 4}))
    lines.close()
    assert "digits completed · 4/4 trials" in capsys.readouterr().err.splitlines()[-1]


def test_a_terminal_is_given_one_line_that_is_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.fileno", lambda: 2)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((40, 20)))
    shown = display.display_for(None)
    shown.say("the service was killed")
    shown.show(a_view(name="a\x1b[31m name"))
    shown.close()

    said, _, drawn = capsys.readouterr().err.partition("\n")
    assert said == "\r\x1b[Kthe service was killed"
    assert drawn.startswith("\r\x1b[K▕██████ ")
    assert drawn.endswith("\n")
    assert "\x1b[31m" not in drawn
    assert len(drawn) < 50


# ── the line ────────────────────────────────────────────────────────────────────────────────────
def test_a_home_without_a_service_says_how_to_start_one(tmp_path: Path) -> None:
    line = Line(settings_for(str(tmp_path), None, None, None))

    with pytest.raises(UnreachableError, match=r"no service runs at the home folder .*connect\(home='.*'\) starts one"):
        line.call(lambda client: client.experiments())
    assert not line.was_killed()


def test_a_line_that_nobody_closes_closes_its_connection() -> None:
    closed: list[bool] = []

    class Connection:
        def close(self) -> None:
            closed.append(True)

    line = Line(settings_for("/nonexistent/home", None, None, None))
    line._client = Connection()  # type: ignore[assignment]  # as much of a client as is asked
    del line

    assert closed == [True]


@pytest.mark.parametrize(
    ("is_alive", "mark", "killed"), [(False, "", True), (True, "", False), (True, "another boot", True)]
)
def test_a_service_was_killed_where_the_home_still_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alive: bool, mark: str, killed: bool
) -> None:
    monkeypatch.setattr(lines, "accepts", lambda _: False)
    monkeypatch.setattr(lines, "DYING_S", 0.0)
    pid = os.getpid() if is_alive else 2**22 + 1

    assert a_line(tmp_path, pid, mark=mark).was_killed() is killed


def test_a_killed_service_that_refuses_connections_is_waited_for_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel closes its sockets before the process is gone: who asks between the two gets no error."""
    dying = iter([True, True, False])
    monkeypatch.setattr(lines, "process_is_alive", lambda _: next(dying))
    monkeypatch.setattr(lines, "accepts", lambda _: False)
    monkeypatch.setattr(lines.time, "sleep", lambda _: None)

    assert a_line(tmp_path, os.getpid()).was_killed()


def test_a_service_that_is_alive_and_slow_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "accepts", lambda _: True)
    monkeypatch.setattr(lines.time, "sleep", lambda _: pytest.fail("it waited"))

    assert not a_line(tmp_path, os.getpid()).was_killed()


def a_line(home: Path, pid: int, *, url: str = "http://127.0.0.1:1", mark: str = "") -> Line:
    (home / "service.json").write_text(json.dumps({"pid": pid, "url": url, "process": mark}))
    return Line(settings_for(str(home), None, None, None))


def test_a_search_is_not_started_from_within_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner_service import UsageError, quick_start

    monkeypatch.setenv("TUNER_ATTEMPT_DIR", "/somewhere")
    with pytest.raises(UsageError, match=r'below `if __name__ == "__main__":`'):
        quick_start(command="python train.py", objective="loss", trials=1)


def test_nothing_of_a_notebook_is_imported_to_see_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)

    assert not display.in_notebook()
