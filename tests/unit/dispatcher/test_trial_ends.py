"""How a trial ends, and how its end is told."""

from __future__ import annotations

import math
import signal

import pytest

from tests.unit.dispatcher.harness import (
    CRASHED,
    EXITED,
    KILLED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.messages import Acknowledge, Forget
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher.effects import Tell
from tuner_service.dispatcher.items import Queue, TrialEnded
from tuner_service.dispatcher.limits import DEATHS_WITHOUT_PROGRESS_LIMIT, RETRY_PAUSE_LIMIT_S
from tuner_service.domain.experiment import AlgorithmSpec, FinalFrom, Goal, Objective
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus

ASSESSED = AlgorithmSpec(name="median_stop")


# ── success ─────────────────────────────────────────────────────────────────────────────────────
def test_a_trial_with_a_final_metric_and_exit_code_0_succeeds_and_is_told_to_the_tuner(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(3, 0.9), a_final(0.25))

    h.exit(1)

    trial = h.trial(1)
    assert (trial.status, trial.reason, trial.value) == (TrialStatus.SUCCEEDED, TrialReason.FINAL_METRIC, 0.25)
    ended = [item for item in h.pending(Queue.TUNER) if isinstance(item, TrialEnded)]
    assert [(i.outcome.number, i.outcome.value, i.outcome.step) for i in ended] == [(1, 0.25, 3)]
    assert trial.told_line == ended[0].line


def test_the_end_is_told_to_both_queues_where_there_is_an_assessor(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.succeed(1)

    for queue in Queue:
        assert [type(item) for item in h.pending(queue)].count(TrialEnded) == 1


def test_the_end_is_told_exactly_once_though_the_exit_is_reported_again(h: Harness) -> None:
    h.run()
    attempt = h.attempt(1)
    h.succeed(1)

    (forget,) = h.exit_as(attempt)

    assert forget == Tell(agent_id=attempt.agent_id, message=Forget(nonce=attempt.nonce))
    assert h.told() == [1]
    h.restart()
    h.exit_as(attempt)
    assert h.told() == [1]


def test_the_agent_forgets_an_attempt_once_its_exit_is_on_disk(h: Harness) -> None:
    h.run()
    nonce = h.attempt(1).nonce
    h.succeed(1)

    assert [order.nonce for order in h.orders(Forget)] == [nonce]
    (attempt,) = h.store.queries.attempts(h.experiment.id, 1)
    assert (attempt.status, attempt.exit) == (AttemptStatus.EXITED, EXITED)


def test_an_exit_before_its_last_report_is_put_off(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5))

    (acknowledge,) = h.exit(1, last_sequence=2)

    assert acknowledge == Tell(agent_id="agent-1", message=Acknowledge(nonce=h.attempt(1).nonce, sequence=1))
    assert h.trial(1).status is TrialStatus.RUNNING
    h.report(1, a_final(0.5))
    h.exit(1)
    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_an_attempt_may_end_before_it_was_confirmed_to_have_started(h: Harness) -> None:
    h.begin()
    h.suggest()
    h.succeed(1)

    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_the_last_final_metric_counts(h: Harness) -> None:
    h.run()
    h.report(1, a_final(0.9, accuracy=0.1), a_final(0.3))
    h.exit(1)

    assert h.trial(1).value == 0.3
    assert h.trial(1).final == {"loss": 0.3, "accuracy": 0.1}


def test_nan_is_an_outcome(h: Harness) -> None:
    h.run()
    h.succeed(1, math.nan)

    trial = h.trial(1)
    assert trial.status is TrialStatus.SUCCEEDED
    assert trial.value is not None
    assert math.isnan(trial.value)
    assert h.experiment.best_number is None


def test_infinity_is_an_outcome_and_may_be_the_best(h: Harness) -> None:
    h.run(trials=2)
    h.succeed(1, math.inf)
    assert h.experiment.best_number == 1
    h.succeed(2, 4.0)
    assert (h.experiment.best_number, h.experiment.best_value) == (2, 4.0)


def test_the_best_is_the_largest_where_the_goal_is_to_maximize(h: Harness) -> None:
    h.run(trials=2, objective=Objective(metric="loss", goal=Goal.MAXIMIZE))
    h.succeed(1, 1.0)
    h.succeed(2, 2.0)

    assert h.experiment.best_number == 2


def test_of_equal_values_the_lowest_number_is_the_best_whichever_ended_first(h: Harness) -> None:
    h.run(trials=3, budget={"trials": 3, "parallel": 3})
    h.succeed(2)
    h.succeed(3)
    assert h.experiment.best_number == 2
    h.succeed(1)
    assert h.experiment.best_number == 1


# ── no final metric ─────────────────────────────────────────────────────────────────────────────
def test_without_a_final_metric_the_trial_has_failed_and_the_metrics_seen_are_named(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5, accuracy=0.1), a_final(accuracy=0.2))
    h.exit(1)

    trial = h.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.FAILED, TrialReason.NO_FINAL_METRIC)
    assert "no final 'loss' (metrics seen: loss, accuracy)" in trial.message
    assert trial.value is None


def test_a_trial_that_reported_nothing_says_so(h: Harness) -> None:
    h.run()
    h.exit(1)

    assert "metrics seen: none" in h.trial(1).message


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        (FinalFrom.LAST, [0.2, 0.7], 0.7),
        (FinalFrom.BEST, [0.2, 0.7], 0.2),
        (FinalFrom.BEST, [math.nan, 0.7], 0.7),
        (FinalFrom.BEST, [math.nan, math.nan], math.nan),
        (FinalFrom.LAST, [0.2, math.nan], math.nan),
    ],
)
def test_the_final_metric_may_be_taken_from_the_intermediate_ones(
    h: Harness, source: FinalFrom, values: list[float], expected: float
) -> None:
    h.run(trial={"final": source})
    h.report(1, *(an_intermediate(step, value) for step, value in enumerate(values)))
    h.exit(1)

    assert h.trial(1).status is TrialStatus.SUCCEEDED
    assert h.trial(1).value == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("source", list(FinalFrom))
def test_a_reported_final_metric_serves_where_no_intermediate_one_was_seen(h: Harness, source: FinalFrom) -> None:
    h.run(trial={"final": source})
    h.succeed(1, 0.5)

    assert h.trial(1).value == 0.5


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────
def test_a_crash_fails_the_trial_with_the_last_line_of_its_log(h: Harness) -> None:
    h.run()
    h.exit(1, CRASHED)

    trial = h.trial(1)
    assert (trial.status, trial.reason, trial.charged) == (TrialStatus.FAILED, TrialReason.EXIT_CODE, 1)
    assert trial.message == "exit code 1: ValueError: bad luck"
    assert trial.fingerprint


def test_a_crash_leads_to_a_new_attempt_of_the_same_trial_within_max_attempts(h: Harness) -> None:
    h.run(trial={"max_attempts": 2})
    h.exit(1, CRASHED)

    assert h.trial(1).status is TrialStatus.RUNNING
    assert h.attempt(1).key.attempt == 2
    assert h.told() == []
    h.exit(1, CRASHED)
    assert h.trial(1).status is TrialStatus.FAILED
    assert h.told() == [1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (ExitRecord(cause=ExitCause.OUT_OF_MEMORY, signal=9), TrialReason.OUT_OF_MEMORY),
        (ExitRecord(cause=ExitCause.LAUNCH_FAILED, tail="no such file"), TrialReason.LAUNCH_FAILED),
        (ExitRecord(cause=ExitCause.FILES_DAMAGED, tail="its folder was removed"), TrialReason.FILES_DAMAGED),
        (ExitRecord(cause=ExitCause.SIGNALED, signal=signal.SIGSEGV), TrialReason.SIGNAL),
    ],
)
def test_what_a_trial_brings_on_itself_has_a_failure_class_of_its_own(
    h: Harness, record: ExitRecord, reason: TrialReason
) -> None:
    h.run()
    h.exit(1, record)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.FAILED, reason)


@pytest.mark.parametrize(
    "record",
    [
        KILLED,
        ExitRecord(cause=ExitCause.SIGNALED, signal=signal.SIGTERM),
        ExitRecord(cause=ExitCause.STOPPED, stop_reason="local"),
        ExitRecord(cause=ExitCause.SUPERVISOR_LOST),
        ExitRecord(cause=ExitCause.HOST_REBOOTED),
    ],
)
def test_what_comes_from_outside_is_not_charged_and_the_trial_goes_on(h: Harness, record: ExitRecord) -> None:
    h.run()
    h.exit(1, record)

    trial = h.trial(1)
    assert (trial.status, trial.charged, trial.deaths_without_progress) == (TrialStatus.RUNNING, 0, 1)
    assert h.attempt(1).key.attempt == 2


def test_deaths_from_outside_without_progress_end_in_a_crash_loop(h: Harness) -> None:
    h.run()
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT - 1):
        h.exit(1, KILLED)
        h.after(RETRY_PAUSE_LIMIT_S)
        assert h.trial(1).status is TrialStatus.RUNNING
    h.exit(1, KILLED)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.FAILED, TrialReason.CRASH_LOOP)
    assert "for the 10th time without a new report" in h.trial(1).message


def test_a_new_report_is_progress_and_a_repeated_one_is_not(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5))
    h.exit(1, KILLED)
    h.report(1, an_intermediate(0, 0.5))
    h.exit(1, KILLED)
    assert h.trial(1).deaths_without_progress == 2

    h.after(RETRY_PAUSE_LIMIT_S)
    h.report(1, an_intermediate(1, 0.4))
    assert h.trial(1).deaths_without_progress == 0


def test_a_late_attempt_is_not_believed(h: Harness) -> None:
    h.run()
    late = h.attempt(1)
    h.exit(1, KILLED)

    assert h.report_as(late, an_intermediate(0, 0.1)) == [
        Tell(agent_id=late.agent_id, message=Acknowledge(nonce=late.nonce, sequence=1))
    ]
    assert h.exit_as(late) == [Tell(agent_id=late.agent_id, message=Forget(nonce=late.nonce))]
    assert h.store.queries.metrics(h.experiment.id, 1) == []
    assert h.trial(1).status is TrialStatus.RUNNING


def test_running_time_is_that_of_all_attempts(h: Harness) -> None:
    h.run()
    h.at += 10
    h.exit(1, KILLED)
    assert (h.trial(1).running_s, h.trial(1).running_since) == (10, h.at), "the next attempt is launched at once"
    h.at += 100
    h.started(1)
    h.at += 5
    h.succeed(1)

    assert (h.trial(1).running_s, h.trial(1).running_since) == (15, None)


def test_a_trial_that_ended_is_dropped_from_memory_with_all_that_belonged_to_it(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), a_checkpoint_record(0))
    h.succeed(1)

    assert 1 not in h.xs.trials
    assert 1 not in h.xs.attempts
    assert h.xs.seen_steps.keys() == h.xs.checkpoints.keys() == h.xs.ordered_at.keys() == set()


# ── when it ended ───────────────────────────────────────────────────────────────────────────────
def ended_long_ago(h: Harness) -> ExitRecord:
    """The exit of an attempt that ended a second after it began, told some seconds later."""
    begun = h.attempt(1).started_at
    assert begun is not None
    record = ExitRecord(cause=ExitCause.EXITED, code=0, started_at=begun, ended_at=begun + 1.0, ran_s=1.0)
    h.after(5.0)
    return record


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_trial_that_ended_while_the_service_was_dead_ended_then(h: Harness, deterministic: bool) -> None:
    h.run(assessor=ASSESSED, deterministic=deterministic)
    h.report(1, an_intermediate(3, 0.9), a_final(0.25))
    h.exit(1, ended_long_ago(h))
    h.take(Queue.ASSESSOR)

    trial, (attempt,) = h.trial(1), h.store.queries.attempts(h.experiment.id, 1)
    assert trial.status is TrialStatus.SUCCEEDED
    assert attempt.started_at is not None
    assert (attempt.ended_at, trial.ended_at, trial.running_s) == (attempt.started_at + 1, attempt.started_at + 1, 1.0)


def test_what_becomes_of_a_trial_later_happens_then(h: Harness) -> None:
    h.run()
    h.report(1, a_checkpoint_record(1))
    h.stop()
    h.exit(1, KILLED)
    h.after(3_600.0)
    h.stop_trial(1)

    assert h.trial(1).ended_at == h.at
