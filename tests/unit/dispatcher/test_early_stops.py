"""The assessor's advice, while trials run and after they ended."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import (
    CRASHED,
    KILLED,
    STOPPED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.messages import Stop
from tuner_service.dispatcher.items import Queue, StopAdvised, TrialEnded
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentStatus
from tuner_service.domain.trial import TrialReason, TrialStatus

ASSESSED = AlgorithmSpec(name="median_stop")


@pytest.fixture
def running(h: Harness) -> Harness:
    h.run(assessor=ASSESSED, trial={"stop_grace_s": 4.0})
    return h


def test_an_advised_stop_is_ordered_with_the_grace_of_the_experiment(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.6))
    running.advise_stop(1, at_report=0)

    (stop,) = running.orders(Stop)
    assert (stop.grace_s, stop.reason) == (4.0, "stopped_by_assessor")
    trial = running.trial(1)
    assert trial.status is TrialStatus.STOPPING
    assert (trial.stopped_at_line, trial.stopped_at_sequence) == (running.experiment.assessor_cursor, 1)
    assert running.journal("stop_advised") == [{"number": 1, "step": 0, "message": "worse than the median"}]


@pytest.mark.parametrize("record", [STOPPED, KILLED, CRASHED])
def test_the_trial_is_early_stopped_however_its_attempt_ends(running: Harness, record: object) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.advise_stop(1)
    running.exit(1, record)  # type: ignore[arg-type]  # parametrised

    trial = running.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.EARLY_STOPPED, TrialReason.STOPPED_BY_ASSESSOR)
    assert (trial.value, trial.message) == (0.5, "worse than the median")
    assert running.told() == [1]
    assert running.experiment.best_number is None


def test_an_early_stopped_trial_uses_its_share_of_the_budget(h: Harness) -> None:
    h.run(assessor=ASSESSED, budget={"trials": 1, "parallel": 1})
    h.report(1, an_intermediate(0, 0.5))
    h.advise_stop(1)
    h.exit(1, STOPPED)

    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_an_early_stop_advised_after_the_trial_ended_is_ignored(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5), a_final(0.5))
    running.exit(1)
    running.advise_stop(1)

    assert running.orders(Stop) == []
    assert running.trial(1).status is TrialStatus.SUCCEEDED


def test_a_second_advice_is_ignored(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.report(1, an_intermediate(1, 0.5))
    running.advise_stop(1)
    at = running.trial(1).stopped_at_line
    running.advise_stop(1)

    assert running.orders(Stop) == []
    assert running.trial(1).stopped_at_line == at


def test_a_trial_between_two_attempts_is_stopped_at_once(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.disconnect()
    running.exit(1, KILLED)
    assert running.trial(1).status is TrialStatus.WAITING

    running.advise_stop(1)

    assert running.trial(1).status is TrialStatus.EARLY_STOPPED


def test_a_trial_that_misses_its_heartbeat_may_still_be_stopped_early(h: Harness) -> None:
    h.run(assessor=ASSESSED, trial={"heartbeat_s": 30.0, "max_attempts": 3})
    h.report(1, an_intermediate(0, 0.5))
    h.after(31)
    h.advise_stop(1)
    h.exit(1, STOPPED)

    assert h.trial(1).status is TrialStatus.EARLY_STOPPED


def test_a_trial_of_a_stopping_experiment_may_still_be_stopped_early(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.stop()
    running.advise_stop(1)
    running.exit(1, STOPPED)

    assert running.trial(1).status is TrialStatus.EARLY_STOPPED


def test_a_paused_trial_may_still_be_stopped_early(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.stop()
    running.exit(1, STOPPED)
    assert running.statuses() == {1: "paused"}
    running.resume()  # its reports are delivered again
    running.advise_stop(1)
    running.exit(1, STOPPED)

    assert running.trial(1).status is TrialStatus.EARLY_STOPPED


def test_what_a_person_gave_up_stays_canceled_whatever_the_assessor_says(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.stop_trial(1)
    running.advise_stop(1)
    running.exit(1, STOPPED)

    assert (running.trial(1).status, running.trial(1).reason) == (TrialStatus.CANCELED, TrialReason.STOPPED_BY_USER)


def test_an_early_stop_stays_one_when_a_person_asks_for_it_too(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.advise_stop(1)
    running.stop_trial(1)
    running.exit(1, STOPPED)

    assert running.trial(1).status is TrialStatus.EARLY_STOPPED


def test_after_a_restart_the_stop_is_ordered_again(running: Harness) -> None:
    running.report(1, an_intermediate(0, 0.5))
    running.advise_stop(1)
    running.restart()
    running.connect(running.observed(1))

    (stop,) = running.orders(Stop)
    assert stop.reason == "stopped_by_assessor"


# ── deterministic ───────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def exact(h: Harness) -> Harness:
    h.run(trials=2, assessor=ASSESSED, deterministic=True)
    h.take(Queue.ASSESSOR)
    return h


def test_deterministic_a_stop_wins_over_everything_reported_after_it(exact: Harness) -> None:
    exact.report(1, an_intermediate(0, 0.5, accuracy=0.1), an_intermediate(1, 0.6), a_checkpoint_record(1))
    exact.report(1, an_intermediate(2, 0.1), a_final(0.1))
    exact.advise_stop(1, at_report=0)
    exact.report(1, an_intermediate(3, 0.0))
    exact.exit(1)

    trial = exact.trial(1)
    assert trial.status is TrialStatus.EARLY_STOPPED
    assert (trial.value, trial.last_step, trial.last_metrics) == (0.5, 0, {"loss": 0.5, "accuracy": 0.1})
    assert trial.final == {}
    assert [m.sequence for m in exact.store.queries.metrics(exact.experiment.id, 1)] == [1]


def test_deterministic_a_stop_wins_over_a_success_that_waits_for_its_last_report_to_be_assessed(
    exact: Harness,
) -> None:
    exact.report(1, an_intermediate(0, 0.5), a_final(0.1))
    exact.exit(1)
    assert exact.trial(1).status is TrialStatus.RUNNING
    assert exact.trial(1).pending_end is not None

    exact.advise_stop(1)

    assert (exact.trial(1).status, exact.trial(1).value) == (TrialStatus.EARLY_STOPPED, 0.5)
    assert exact.trial(1).pending_end is None


def test_deterministic_a_trial_ends_when_its_last_report_is_assessed(exact: Harness) -> None:
    exact.report(1, an_intermediate(0, 0.5))
    exact.report(1, an_intermediate(1, 0.4), a_final(0.3))
    exact.exit(1)
    exact.take(Queue.ASSESSOR, upto=1)
    assert exact.trial(1).status is TrialStatus.RUNNING
    exact.take(Queue.ASSESSOR, upto=1)
    assert (exact.trial(1).status, exact.trial(1).value) == (TrialStatus.SUCCEEDED, 0.3)


def test_deterministic_a_pending_end_survives_a_restart(exact: Harness) -> None:
    exact.report(1, an_intermediate(0, 0.5), a_final(0.3))
    exact.exit(1)
    exact.restart()
    exact.ready()
    exact.take(Queue.ASSESSOR)

    assert exact.trial(1).status is TrialStatus.SUCCEEDED


def test_deterministic_a_stop_after_a_restart_still_knows_every_metric_of_its_report(exact: Harness) -> None:
    exact.report(1, an_intermediate(0, 0.5, accuracy=0.1), an_intermediate(1, 0.6))
    exact.restart()
    exact.ready()
    exact.advise_stop(1, at_report=0)

    assert exact.trial(1).last_metrics == {"loss": 0.5, "accuracy": 0.1}


def test_deterministic_an_answer_with_a_stop_for_an_ended_trial_is_ignored(exact: Harness) -> None:
    exact.report(1, an_intermediate(0, 0.5))
    exact.disconnect()
    exact.exit(1, KILLED)
    (item,) = exact.pending(Queue.ASSESSOR)
    exact.stop_trial(1)
    assert exact.trial(1).status is TrialStatus.CANCELED
    exact.answer(Queue.ASSESSOR, StopAdvised(line=item.line, sequence=1, message="no"))

    assert exact.trial(1).status is TrialStatus.CANCELED
    assert [type(i) for i in exact.pending(Queue.ASSESSOR)].count(TrialEnded) == 1
