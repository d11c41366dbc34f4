"""What the service counts of itself: right at the edges, and nothing that somebody sent can make it grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_line, a_metric, a_spec, an_experiment
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Acknowledge, Busy
from trials.wire.records import MetricRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.experiment import Budget, ExperimentStatus
from tuner_service.service.measures import LONGEST_LAG_S, Answered, Histogram, Measures, RequestMeasures

AT = 1_000.0
PARALLEL = Budget(trials=100, parallel=3)


def places(*kinds: str, at: float = AT, running: int = 1, **overrides: Any) -> Changes:
    """The changes of a commit with journal lines of these kinds, after which so many trials run."""
    experiment = an_experiment(**({"status": ExperimentStatus.RUNNING, "spec": a_spec(budget=PARALLEL)} | overrides))
    experiment.counts["running"] = running
    changes = Changes(experiments={experiment.id: experiment})
    changes.journal = [a_line(experiment_id=experiment.id, kind=kind, at=at) for kind in kinds]
    return changes


def reports(at: Sequence[float], nonce: str = "n") -> c.ReportsReceived:
    records = tuple(MetricRecord(step=step, values={"loss": 1.0}, at=said) for step, said in enumerate(at))
    key = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)
    return c.ReportsReceived(at=AT, agent_id="a", key=key, nonce=nonce, first_sequence=1, records=records)


def lags(*commands: c.Command, effects: Sequence[e.Effect] = ()) -> tuple[int, float]:
    measures = Measures()
    measures.acknowledged(commands, effects, at=AT)
    return sum(measures.report_lag.counts), measures.report_lag.total


# ── a histogram ─────────────────────────────────────────────────────────────────────────────────
def test_a_value_is_counted_up_to_its_bound_and_the_greatest_beyond_all() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.0, 0.1, 0.100001, 1.0, 1.1, 1e9):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 2]
    assert histogram.total == pytest.approx(1e9 + 2.300001)


# ── commits and reports ─────────────────────────────────────────────────────────────────────────
def test_a_commit_counts_its_time_and_its_reports() -> None:
    measures = Measures()
    measures.committed(Changes(metrics=[a_metric(), a_metric()]), seconds=0.02, at=AT)

    assert (sum(measures.commit.counts), measures.commit.total, measures.reports) == (1, 0.02, 2)


def test_of_a_message_of_reports_the_oldest_one_counts() -> None:
    assert lags(reports([AT - 3, AT - 2, AT - 1])) == (1, 3.0)
    assert lags(reports([AT - 3]), reports([AT - 2], nonce="other")) == (2, 5.0)


def test_reports_that_were_not_taken_are_not_counted() -> None:
    busy = e.Tell(agent_id="a", message=Busy(nonce="n", retry_after_s=1.0))
    taken = e.Tell(agent_id="a", message=Acknowledge(nonce="other", sequence=1))

    assert lags(reports([AT - 3]), reports([AT - 2], nonce="other"), effects=[busy, taken]) == (1, 2.0)


@pytest.mark.parametrize("at", [math.nan, math.inf, AT + 60])
def test_a_clock_that_goes_ahead_or_says_no_time_counts_as_no_lag(at: float) -> None:
    assert lags(reports([at])) == (1, 0.0)


@pytest.mark.parametrize("at", [-math.inf, -1e308, -LONGEST_LAG_S, -(2**53)])
def test_a_clock_that_says_anything_cannot_make_the_sum_useless(at: float) -> None:
    assert lags(reports([at])) == (1, LONGEST_LAG_S)


def test_what_holds_no_report_is_no_lag() -> None:
    key = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)
    rejected = (c.RejectedRecord(error="no"),)
    for records in ((), rejected):
        assert lags(c.ReportsReceived(at=AT, agent_id="a", key=key, nonce="n", first_sequence=1, records=records)) == (
            0,
            0.0,
        )
    assert lags(c.TimePassed(at=AT)) == (0, 0.0)


# ── from a free place to a launch ───────────────────────────────────────────────────────────────
def test_a_place_is_free_from_the_end_of_an_attempt_until_the_next_launch() -> None:
    measures = Measures()
    measures.committed(places("attempt_ended"), seconds=0.01, at=AT + 0.01)
    assert sum(measures.dispatch.counts) == 0
    measures.committed(places("trial_ended", "attempt_launched"), seconds=0.01, at=AT + 0.25)

    assert (sum(measures.dispatch.counts), measures.dispatch.total) == (1, 0.25)


def test_an_end_and_a_launch_of_one_commit_belong_together() -> None:
    measures = Measures()
    measures.committed(places("attempt_ended", "attempt_launched"), seconds=0.01, at=AT + 0.02)

    assert measures.dispatch.total == pytest.approx(0.02)


def test_a_launch_into_a_place_that_nobody_left_is_not_measured() -> None:
    measures = Measures()
    measures.committed(places("attempt_launched"), seconds=0.01, at=AT)

    assert sum(measures.dispatch.counts) == 0


def test_places_of_an_experiment_that_does_not_run_are_not_waited_for() -> None:
    for status in (ExperimentStatus.PAUSED, ExperimentStatus.COMPLETED, ExperimentStatus.STOPPED):
        measures = Measures()
        measures.committed(places("attempt_ended", status=status), seconds=0.01, at=AT)
        measures.committed(places("attempt_launched"), seconds=0.01, at=AT + 1e6)
        assert sum(measures.dispatch.counts) == 0
        assert measures._free_since == {}


def test_fewer_places_at_a_time_leave_none_behind() -> None:
    measures = Measures()
    measures.committed(places(*["attempt_ended"] * 3, running=0), seconds=0.01, at=AT)
    fewer = a_spec(budget=Budget(trials=100, parallel=1))
    measures.committed(places(spec=fewer, running=0), seconds=0.01, at=AT)
    assert {name: len(kept) for name, kept in measures._free_since.items()} == {EXPERIMENT_ID: 1}

    measures.committed(places("attempt_launched", spec=fewer, running=1), seconds=0.01, at=AT + 1)
    assert measures._free_since == {}


def test_nothing_is_kept_of_an_experiment_that_was_deleted() -> None:
    measures = Measures()
    measures.committed(places("attempt_ended"), seconds=0.01, at=AT)
    measures.committed(Changes(deleted_experiments=[EXPERIMENT_ID]), seconds=0.01, at=AT)

    assert measures._free_since == {}


# ── requests ────────────────────────────────────────────────────────────────────────────────────
def test_requests_are_counted_by_all_three_and_timed_by_two() -> None:
    measures = RequestMeasures()
    for status in ("2xx", "2xx", "4xx"):
        measures.see(Answered(method="GET", route="/version", status=status), 0.002)

    assert sorted(measures.answered.values()) == [1, 2]
    assert {key: sum(one.counts) for key, one in measures.durations.items()} == {("GET", "/version"): 3}
