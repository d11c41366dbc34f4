"""What the tables of benchmarks say of the rounds that were measured."""

from __future__ import annotations

from typing import Any

from benchmarks.dashboard.__main__ import row_of
from benchmarks.dashboard.visits import is_at_rest
from benchmarks.ray.__main__ import EACH, OURS, REUSED
from benchmarks.ray.__main__ import rows_of as rows_of_ray
from benchmarks.reports.__main__ import OPTUNA, PACED
from benchmarks.reports.__main__ import rows_of as rows_of_reports
from benchmarks.streams.__main__ import ALONE
from benchmarks.streams.__main__ import rows_of as rows_of_streams


def test_reports_are_compared_with_the_faster_optuna_of_each_round() -> None:
    found: dict[str, list[dict[str, Any]]] = {
        PACED: [{"a_second": 100.0, "delay_p99_ms": 7.0}, {"a_second": 100.0, "delay_p99_ms": 9.0}],
        OPTUNA[0]: [{"a_second": 10.0, "version": "5.0.0"}, {"a_second": 20.0, "version": "5.0.0"}],
        OPTUNA[1]: [{"a_second": 50.0, "version": "5.0.0"}, {"a_second": 5.0, "version": "5.0.0"}],
        "ray": [{"error": "no ray"}, {"a_second": 1.0}],
    }

    paced, sqlite, journal, ray = rows_of_reports(found)

    assert paced["what"] == PACED
    assert [row["× the better Optuna"] for row in (paced, sqlite, journal)] == [
        "3.5 (2.0–5.0)",
        "0.6 (0.2–1.0)",
        "0.6 (0.2–1.0)",
    ]
    assert (paced["p99 ms to disk"], sqlite["version"], ray["left out"]) == (8.0, "5.0.0", "no ray")


def test_reports_without_optuna_have_no_ratio() -> None:
    failed = [{"error": "none"}]

    row, *_ = rows_of_reports({PACED: [{"a_second": 100.0}], OPTUNA[0]: failed, OPTUNA[1]: failed})

    assert row["× the better Optuna"] == ""


def test_what_streams_cost_is_of_each_round_and_the_target_of_the_median() -> None:
    def rounds(*microseconds: float) -> list[dict[str, Any]]:
        rest = {"a_second": 1.0, "reports": 1, "events": 1, "gaps": 0, "slowest_s": None, "asked_a_second": 0.0}
        rest |= {"delay_median_ms": 1.0, "delay_p99_ms": 1.0}
        return [{"service_us": one, **rest} for one in microseconds]

    alone, cheap, dear = rows_of_streams(
        {ALONE: rounds(10, 20, 10), "cheap": rounds(10.4, 21, 12), "dear": rounds(10.6, 22, 12)}
    )

    assert (alone["more %"], alone["target is"]) == (None, None)
    assert (cheap["more %"], cheap["target is"]) == ("5.0 (4.0–20.0)", "reached")
    assert (dear["more %"], dear["target is"]) == ("10.0 (6.0–20.0)", "NOT reached")


def test_trials_that_never_stopped_are_no_answer_to_the_command_that_resumes() -> None:
    example = {"trials": 4, "steady_a_second": 2.0, "first_s": 1.0, "whole_s": 2.0}
    resume = {"ran again": 0, "first trial, s": 0.0}
    round_ = {
        "actor_s": 1.0,
        "first_trial_s": 2.0,
        "example": dict.fromkeys((OURS, EACH, REUSED), example),
        "resume": {OURS: resume, EACH: resume | {"first trial, s": 3.0}},
    }

    *_, ours, each = rows_of_ray([round_])

    assert (ours["first trial, s"], each["first trial, s"]) == ("–", 3.0)


def test_a_page_is_shown_by_its_rounds_and_what_was_not_there_in_time_is_no_figure() -> None:
    def visit(seconds: float, curves: float | None) -> dict[str, float | None]:
        rest = {"paint_s": 0.1, "sent_mb": 2.0, "heap_mb": 3.0, "processor_s": 0.5}
        return {"plots_s": seconds, "curves_s": curves, **rest}

    found = [
        {"page": "ours", "first": visit(3, 4), "next": visit(1, None), "change_s": 0.02, "frame_ms": 17.0},
        {"page": "other", "first": visit(9, 9), "next": visit(9, 9)},
        {"page": "ours", "first": visit(5, 6), "next": visit(2, 3), "change_s": 0.04, "frame_ms": 19.0},
    ]

    ours, other = row_of(found, "ours"), row_of(found, "other")

    assert (ours["plots, first s"], ours["plots, next s"]) == ("4.00 (3.00–5.00)", "1.50 (1.00–2.00)")
    assert (ours["curves, first s"], ours["curves, next s"]) == ("5.00 (4.00–6.00)", "–")
    assert (ours["change s"], other["change s"], other["processor, next s"]) == ("0.030 (0.020–0.040)", "", "0.50")


def test_a_server_is_at_rest_once_it_has_computed_next_to_nothing_for_two_seconds() -> None:
    quiet = [10 + 0.009 * look for look in range(11)]

    assert is_at_rest([0.0, 5.0, *quiet])
    assert not is_at_rest(quiet[:-1])
    assert not is_at_rest([9.98, *quiet[:-1]])
