"""Text for people: tables, numbers, durations, curves, progress."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.cli.output.exit_codes import ExitCode, exit_code_of, say
from tuner_service.cli.output.progress import (
    ERROR_LINES,
    failure_text,
    has_come_to_rest,
    progress_line,
    result_text,
)
from tuner_service.cli.output.tables import (
    Column,
    ago_text,
    clip,
    curve,
    duration_text,
    format_rows,
    moment_text,
    number_text,
    parameters_text,
    print_object,
    sparkline,
)
from tuner_service.cli.verbs import asset, sessions, start
from tuner_service.cli.verbs.best import best_text
from tuner_service.cli.verbs.trials import trials_text

ROWS = [{"id": "a", "n": 1, "inner": {"x": 1.5}, "list": [1, 2]}, {"id": "b", "n": 22, "inner": {}, "list": []}]
COLUMNS = (Column(title="ID", text=lambda r: r["id"]), Column(title="N", text=lambda r: str(r["n"]), right=True))


def a_view(**overrides: Any) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": "8f3k2",
        "name": "digits",
        "status": "running",
        "reason": "none",
        "message": "",
        "detail": "",
        "counts": {"succeeded": 4, "early_stopped": 1, "running": 2},
        "budget": {"trials": 20, "duration": None, "parallel": 2, "failures": 10},
        "objective": {"metric": "accuracy", "goal": "maximize"},
        "best": {"number": 3, "value": 0.93, "parameters": {"lr": 0.01}},
        "running_s": 50.0,
    }
    return view | overrides


def test_a_table_aligns_its_columns() -> None:
    assert format_rows(ROWS, output="table", columns=COLUMNS) == "ID   N\na    1\nb   22\n"


def test_a_text_with_a_carriage_return_in_it_is_quoted_in_csv() -> None:
    assert format_rows([{"id": "a\rb", "n": 1}], output="csv", columns=()) == 'id,n\n"a\rb",1\n'


def test_csv_spreads_objects_over_columns() -> None:
    assert format_rows(ROWS, output="csv", columns=()) == 'id,n,inner.x,list,inner\na,1,1.5,"[1, 2]",\nb,22,,,\n'


def test_no_rows_are_a_heading_or_an_empty_list() -> None:
    assert format_rows([], output="table", columns=COLUMNS) == "ID  N\n"
    assert format_rows([], output="json", columns=COLUMNS) == "[]\n"
    assert format_rows([], output="id", columns=COLUMNS) == ""


def test_what_a_trial_wrote_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in clip("\x1b[2Jgone\nline")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.123456789, "0.123457"), (3, "3"), ("NaN", "NaN"), (True, "True")]
)
def test_numbers_have_six_digits(value: Any, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.25, "0.2s"), (42, "42s"), (61, "1m01s"), (3600, "1h00m"), (90061, "25h01m")]
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0s ago"), (12.9, "12s ago"), (61, "1m ago"), (7_199, "1h ago"), (200_000, "2d ago")],
)
def test_how_long_ago_something_was_is_told_in_one_unit(seconds: float | None, text: str) -> None:
    assert ago_text(seconds) == text


def test_a_table_of_trials_tells_what_one_that_runs_has_reached_and_when_it_said_so() -> None:
    page = [[1, 2], ["succeeded", "running"], ["final_metric", "launched"], [0.25, None], [0.3, 0.5], [9, 3], [1, 1],
            [60.0, 30.5], [None, 12.4], [{"lr": 0.1}, {"lr": 0.2}]]  # fmt: skip
    assert trials_text([page]).splitlines() == [
        "NUMBER  STATUS     REASON        VALUE  LAST  STEP  ATTEMPTS  RUNNING  REPORTED  PARAMETERS",
        "     1  succeeded  final_metric   0.25   0.3     9         1    1m00s         -  lr=0.1",
        "     2  running    launched          -   0.5     3         1      30s   12s ago  lr=0.2",
    ]


def test_parameters_stand_on_one_line() -> None:
    assert parameters_text({"lr": 0.1, "layer": {"_name": "conv"}}) == 'lr=0.1 layer={"_name": "conv"}'
    assert parameters_text(None) == ""


def test_a_sparkline_keeps_its_width_and_its_ends() -> None:
    line = sparkline([float(n) for n in range(100)])

    assert (len(line), line[0], line[-1]) == (20, "▁", "█")
    assert sparkline([]) == ""
    assert sparkline([1.0, 1.0]) == "▁▁"


def test_a_curve_names_its_highest_and_lowest_value() -> None:
    lines = curve([1.0, 2.0, 4.0]).splitlines()

    assert (lines[0].split()[0], lines[-1].split()[0]) == ("4", "1")
    assert sum(line.count("•") for line in lines) == 3


@pytest.mark.parametrize("most", [1.7e308, float("inf")])
def test_a_curve_over_all_that_a_float_holds_is_drawn(most: float) -> None:
    assert sum(line.count("•") for line in curve([most, 0.0, -most]).splitlines()) == 3
    assert sparkline([most, 0.0, -most]) == "█▅▁"
    assert sparkline([5e-324, 0.0]) == "█▁"


def test_progress_tells_status_counts_best_and_what_is_left() -> None:
    line = progress_line(a_view(), [0.1, 0.93])

    assert line == (
        "digits running · 5/20 trials · 2 running · best accuracy 0.93 (trial 3) ▁█ · 50s · about 1m57s left"
    )


@pytest.mark.parametrize(
    ("counts", "parallel"), [({"succeeded": 4, "failed": 9, "running": 2}, 2), ({"succeeded": 7, "running": 4}, 4)]
)
def test_nothing_is_said_of_the_time_left_before_enough_trials_have_ended(
    counts: dict[str, int], parallel: int
) -> None:
    budget = {"trials": 20, "duration": None, "parallel": parallel, "failures": 10}

    assert "left" not in progress_line(a_view(counts=counts, budget=budget), [])


@pytest.mark.parametrize("parallel", [1, 4, 10])
def test_the_time_left_is_about_right_whatever_runs_at_a_time(parallel: int) -> None:
    """Trials of 10 s each, 100 of them, some time after the second round of them has ended."""
    counts = {"succeeded": 5 * parallel, "running": parallel}
    view = a_view(
        counts=counts, running_s=55.0, budget={"trials": 100, "duration": None, "parallel": parallel, "failures": 10}
    )
    left = (100 / parallel) * 10.0 - 55.0

    assert f"about {duration_text(left)} left" in progress_line(view, [])


def test_a_failure_is_told_with_the_end_of_its_traceback_and_where_the_rest_is() -> None:
    tail = "Traceback (most recent call last):\n" + "  File x\n" * 20 + "ValueError: bad lr"
    text = failure_text(
        {
            "id": "8f3k2/1",
            "reason": "exit_code",
            "message": "exit code 1: ValueError: bad lr",
            "attempt_details": [{"exit": None}, {"exit": {"tail": tail}}],
        }
    )

    assert text.startswith("trial 8f3k2/1 failed (exit_code): exit code 1: ValueError: bad lr\n")
    assert "  | ValueError: bad lr\n" in text
    assert "tuner logs 8f3k2/1 --stderr" in text
    assert len(text.splitlines()) == 2 + ERROR_LINES


def test_an_experiment_paused_by_trouble_has_come_to_rest_and_one_paused_by_a_person_has_not() -> None:
    assert has_come_to_rest(a_view(status="paused", reason="algorithm_failed"))
    assert not has_come_to_rest(a_view(status="paused", reason="requested"))


def test_the_result_of_a_tuner_that_raised_shows_its_traceback_and_how_to_go_on() -> None:
    text = result_text(
        a_view(status="paused", reason="algorithm_failed", message="the tuner raised", detail="Traceback: boom")
    )

    assert "Traceback: boom" in text
    assert "tuner resume 8f3k2" in text


@pytest.mark.parametrize(
    ("reason", "message", "way_on"),
    [
        ("algorithm_failed", "tuner, journal line 12: KeyError: 'line 7'", "--skip-line 12"),
        ("algorithm_failed", "assessor, journal line 3: no value", "--skip-line 3"),
        (
            "algorithm_failed",
            "tuner: SyntaxError: line 5",
            "with a class that is mended: tuner resume 8f3k2 --code FOLDER",
        ),
        ("algorithm_failed", "busy (tried 4 times); fix the cause, then resume", "--skip-line N"),
        ("algorithm_hangs", "the tuner did not answer journal line 40 within 60 s (tried 4 times)", "--skip-line 40"),
        (
            "worker_dies",
            "exit code 5, 8 times in a row without an answer (tuner: line 9 of the journal)",
            "--skip-line 9",
        ),
        ("worker_dies", "8 times (tuner: line 9 of the journal, assessor: line 4 of the journal)", "--skip-line N"),
    ],
)
def test_the_way_on_names_the_line_at_which_an_algorithm_raised(reason: str, message: str, way_on: str) -> None:
    view = a_view(status="paused", reason=reason, message=message)

    assert result_text(view).splitlines()[-1].endswith(way_on)


@pytest.mark.parametrize(("reason", "helps"), [("algorithm_hangs", True), ("algorithm_failed", False)])
def test_a_search_that_is_paused_because_an_answer_took_too_long_is_told_how_it_may_take_longer(
    reason: str, helps: bool
) -> None:
    view = {"id": "8f3", "status": "paused", "reason": reason, "message": "journal line 40", "best": None}
    assert ("tuner resume 8f3 --algorithm-timeout" in result_text(view)) is helps


def test_the_best_so_far_is_drawn_without_what_is_no_number() -> None:
    trial = {"id": "8f3k2/4", "parameters": {"lr": 0.1}, "inputs": {"data": "digits@1"}, "command": ["true"]}
    view = {"trials": 3, "history": {"numbers": [1, 2, 4], "values": ["Infinity", 0.7, 0.5]}}
    experiment = a_view(best={"number": 4, "value": 0.5, "parameters": {"lr": 0.1}})

    text = best_text(experiment, trial, view)

    assert "by trial 8f3k2/4" in text
    assert "data  digits@1" in text
    assert "so far, over 3 trials" in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/data/copy"), "tuner: /data/copy: No space left on device\n"),
        (OSError(13, "Permission denied", b"/root"), "tuner: /root: Permission denied\n"),
        (OSError("closed"), "tuner: closed\n"),
    ],
)
def test_what_the_system_refuses_is_said_by_path_and_reason(
    error: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == ExitCode.FAILURE
    assert capsys.readouterr().err == said


def test_names_that_somebody_else_chose_are_text_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[31mloss\x1b]0;title\x07\u202e"
    view = {
        "id": "8f3k2", "name": hostile, "status": "completed", "reason": "none", "message": "", "detail": "",
        "counts": {"succeeded": 1}, "budget": {"trials": 1, "parallel": 1, "duration": None}, "running_s": 1.0,
        "objective": {"metric": hostile, "goal": "minimize"},
        "best": {"number": 1, "value": 0.5, "parameters": {hostile: 1}},
    }  # fmt: skip
    print_object(view, output="table", text=lambda row: f"{row['name']}\n\t{row['best']}\n")
    say(f"tuner: {hostile}")
    written = capsys.readouterr()

    for text in (progress_line(view, [0.5]), result_text(view), written.out, written.err):
        assert "loss" in text
        assert all(sign.isprintable() or sign in "\n\t" for sign in text)


@pytest.mark.parametrize(
    ("zone", "said"), [("UTC", "2026-11-25 23:30:05+00:00"), ("Asia/Kolkata", "2026-11-26 05:00:05+05:30")]
)
def test_a_time_is_of_this_machine_and_says_its_distance_from_utc(
    monkeypatch: pytest.MonkeyPatch, zone: str, said: str
) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", zone)
        time.tzset()
        assert moment_text("2026-11-25T23:30:05.123456+00:00") == moment_text("2026-11-25T23:30:05Z") == said
    time.tzset()
    assert moment_text(None) == "-"


def test_a_table_of_assets_tells_times_as_every_table_does() -> None:
    (column,) = (column for column in asset.COLUMNS if column.title == "ADDED")
    at = "2026-11-25T23:30:05.123456Z"

    assert column.text({"created_at": at}) == moment_text(at)


def test_one_asset_is_told_with_its_time_as_every_table_tells_it() -> None:
    at = "2026-11-25T23:30:05.123456Z"
    view = {
        "id": "0" * 64, "digest": "sha256:" + "0" * 64, "kind": "code", "names": [], "size": 0, "files": 0,
        "created_at": at, "experiments": [],
    }  # fmt: skip
    service: Any = SimpleNamespace(asset_files=lambda _id: iter([]))

    assert f"added        {moment_text(at)}\n" in asset._text(service, view)


@pytest.mark.parametrize(("role", "said"), [("admin", "admin"), ("operator", "operator"), ("read_only", "read-only")])
def test_a_session_says_the_role_that_it_has(role: str, said: str) -> None:
    (column,) = (column for column in sessions.COLUMNS if column.title == "ROLE")

    assert column.text({"role": role}) == said


def test_a_draw_is_one_line_whatever_its_options_hold() -> None:
    answer = {
        "experiment": {"search_space": {"x": 1}},
        "space_size": 2,
        "samples": [{"prompt": "a\nb"}, {"prompt": "c"}],
    }

    assert start._dry_run_text(answer).splitlines()[-2:] == ["  prompt=a b", "  prompt=c"]
