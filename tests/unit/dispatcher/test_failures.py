"""Failures: what they cost, and when they end or pause an experiment."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import CRASHED, KILLED, Harness, an_intermediate
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher.items import Queue, TrialEnded
from tuner_service.dispatcher.limits import DEATHS_WITHOUT_PROGRESS_LIMIT, RETRY_PAUSE_LIMIT_S
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialOutcome, TrialReason, TrialStatus

OTHER = ExitRecord(cause=ExitCause.EXITED, code=2)


def a_failure_of_its_own(number: int) -> ExitRecord:
    return ExitRecord(cause=ExitCause.EXITED, code=number)


def test_failures_do_not_eat_the_budget(h: Harness) -> None:
    h.run(budget={"trials": 1, "parallel": 1})
    h.exit(1, CRASHED)

    assert h.asked_for() == [2]
    assert h.experiment.spared == 1
    h.start_next()
    h.succeed(2)
    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.COMPLETED,
        ExperimentReason.BUDGET_REACHED,
    )
    assert "the one trial is done" in h.experiment.message


@pytest.mark.parametrize(
    ("record", "is_own"),
    [
        (CRASHED, True),
        (ExitRecord(cause=ExitCause.SIGNALED, signal=11), True),
        (ExitRecord(cause=ExitCause.OUT_OF_MEMORY, signal=9), True),
        (ExitRecord(cause=ExitCause.OUT_OF_TIME), True),
        (ExitRecord(cause=ExitCause.EXITED, code=0), True),  # without the final metric
        (ExitRecord(cause=ExitCause.LAUNCH_FAILED), False),
    ],
)
def test_algorithms_are_told_which_failures_were_the_trials_own(h: Harness, record: ExitRecord, is_own: bool) -> None:
    h.run(budget={"trials": 9, "parallel": 1})
    h.exit(1, record)
    assert h.statuses()[1] == "failed"
    assert [one.own_failure for one in told_outcomes(h)] == [is_own]


def test_a_trial_that_was_killed_from_outside_again_and_again_is_not_to_blame(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1})
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT):
        h.after(RETRY_PAUSE_LIMIT_S)
        h.started(1)
        h.exit(1, KILLED)
    assert h.trial(1).reason is TrialReason.CRASH_LOOP
    assert [one.own_failure for one in told_outcomes(h)] == [False]


def told_outcomes(h: Harness) -> list[TrialOutcome]:
    return [item.outcome for item in h.pending(Queue.TUNER) if isinstance(item, TrialEnded)]


def test_a_limit_of_failures_ends_the_experiment_as_failed(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1, "failures": 3})
    for number in (1, 2):
        h.exit(number, a_failure_of_its_own(number))
        h.start_next()
    h.exit(3, a_failure_of_its_own(3))

    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.FAILED,
        ExperimentReason.TOO_MANY_FAILURES,
    )


def test_trials_running_when_the_limit_is_reached_are_stopped_and_go_on_when_it_is_resumed(h: Harness) -> None:
    h.run(trials=3, budget={"trials": 9, "parallel": 3, "failures": 1})
    h.exit(2, CRASHED)
    assert h.experiment.status is ExperimentStatus.STOPPING
    assert h.statuses() == {1: "stopping", 2: "failed", 3: "stopping"}

    for number in (1, 3):
        h.exit(number, ExitRecord(cause=ExitCause.STOPPED))
    assert h.experiment.status is ExperimentStatus.FAILED
    assert h.statuses() == {1: "paused", 2: "failed", 3: "paused"}

    h.resume()
    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.statuses() == {1: "running", 2: "failed", 3: "running"}
    assert h.experiment.failures == 0


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_first_trials_failing_alike_pause_the_experiment_at_once(h: Harness, deterministic: bool) -> None:
    h.run(trials=3, budget={"trials": 9, "parallel": 3}, deterministic=deterministic)
    for number in (3, 1):
        h.exit(number, CRASHED)
        if h.asked_for():
            h.start_next()
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.exit(2, CRASHED)
    if h.asked_for():
        h.suggest()  # deterministic: the line of decisions is told trial 3 only after this one

    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.PAUSED,
        ExperimentReason.IDENTICAL_FAILURES,
    )
    assert "the first 3 trials failed with the same error, exit code 1" in h.experiment.message


def test_one_trial_at_a_time_two_equal_failures_are_needed(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1})
    h.exit(1, CRASHED)
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.start_next()
    h.exit(2, CRASHED)
    assert h.experiment.status is ExperimentStatus.PAUSED


def test_after_a_person_has_resumed_another_error_pauses_it_as_the_first_did(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1})
    h.exit(1, CRASHED)
    h.start_next()
    h.exit(2, CRASHED)
    h.resume()
    h.ready()
    for _ in range(2):
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.exit(h.start_next(), OTHER)

    assert h.experiment.reason is ExperimentReason.IDENTICAL_FAILURES


def test_failures_that_differ_do_not_pause(h: Harness) -> None:
    h.run(trials=2)
    h.exit(1, CRASHED)
    h.start_next()
    h.exit(2, OTHER)
    h.start_next()
    h.exit(3, CRASHED)

    assert h.experiment.status is ExperimentStatus.RUNNING


def test_a_success_among_the_first_trials_shows_that_the_error_is_not_in_all(h: Harness) -> None:
    h.run(trials=2)
    h.succeed(1)
    h.start_next()
    h.exit(2, CRASHED)
    h.start_next()
    h.exit(3, CRASHED)

    assert h.experiment.status is ExperimentStatus.RUNNING


def test_a_trial_that_a_person_gave_up_says_nothing_about_errors(h: Harness) -> None:
    h.run(trials=2)
    h.stop_trial(1)
    h.exit(1, ExitRecord(cause=ExitCause.STOPPED))
    h.start_next()
    h.exit(2, CRASHED)
    h.start_next()
    h.exit(3, CRASHED)

    assert h.experiment.reason is ExperimentReason.IDENTICAL_FAILURES


def test_after_a_resume_the_count_of_equal_failures_begins_anew(h: Harness) -> None:
    h.run(trials=2)
    for number in (1, 2):
        h.exit(number, CRASHED)
    assert h.experiment.status is ExperimentStatus.PAUSED
    h.suggest()  # asked for between the two failures

    h.resume()
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.exit(3, CRASHED)
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.start_next()
    h.exit(4, CRASHED)
    assert h.experiment.reason is ExperimentReason.IDENTICAL_FAILURES


def test_a_failure_that_the_assessor_overtook_does_not_count_as_one(h: Harness) -> None:
    h.run(trials=2, deterministic=True, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(0, 0.5))
    h.exit(1, CRASHED)
    assert h.trial(1).fingerprint
    h.advise_stop(1)

    assert h.trial(1).reason is TrialReason.STOPPED_BY_ASSESSOR
    assert h.trial(1).fingerprint == ""
    assert h.experiment.same_errors == h.experiment.failures == 0


def test_in_a_deterministic_experiment_the_pause_comes_at_the_same_line_whatever_ended_first() -> None:
    def lines_told_before_the_pause(order: tuple[int, ...]) -> list[int]:
        h = Harness()
        h.run(trials=2, budget={"trials": 9, "parallel": 2}, deterministic=True)
        for number in order:
            h.exit(number, CRASHED)
            h.take(Queue.TUNER)
            if h.asked_for():
                h.suggest()
        assert h.experiment.reason is ExperimentReason.IDENTICAL_FAILURES
        return h.told()

    assert lines_told_before_the_pause((1, 2)) == lines_told_before_the_pause((2, 1)) == [1, 2]


# ── what it is given is not there ───────────────────────────────────────────────────────────────
NOT_THERE = ExitRecord(cause=ExitCause.ASSETS_MISSING, tail="asset sha256:ab is not in the store /assets")


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_store_without_what_a_trial_is_given_pauses_the_experiment(h: Harness, deterministic: bool) -> None:
    """Every trial would fail for it, one after the other: the search would be over on a Monday, with nothing run."""
    h.run(trials=2, budget={"trials": 4, "parallel": 2}, deterministic=deterministic)

    h.exit(1, NOT_THERE)
    h.exit(2, NOT_THERE)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ASSETS_MISSING)
    assert h.experiment.message.startswith("asset sha256:ab is not in the store /assets; once it is there again: tuner")
    assert [h.trial(number).status for number in (1, 2)] == [TrialStatus.WAITING] * 2
    assert [h.trial(number).charged for number in (1, 2)] == [0, 0]
    assert h.experiment.failures == 0


def test_what_was_not_there_may_be_missing_as_often_as_it_likes(h: Harness) -> None:
    """No death of the trial: it has not run."""
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT + 1):
        h.exit(1, NOT_THERE)
        assert h.experiment.status is ExperimentStatus.PAUSED
        h.resume()

    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.trial(1).status is TrialStatus.RUNNING
