"""What a script reports as final after it was told to stop is no result, and that it leaves then is no end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.dispatcher.advised import Advised
from tests.unit.dispatcher.harness import (
    CRASHED,
    EXITED,
    KILLED,
    STOPPED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.messages import Launch, Stop
from trials.wire.records import CooperationRecord, ExitCause, ExitRecord, StopToldRecord
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.limits import DEATHS_WITHOUT_PROGRESS_LIMIT, RETRY_PAUSE_LIMIT_S
from tuner_service.domain.experiment import AlgorithmSpec, FinalFrom
from tuner_service.domain.trial import TrialReason, TrialStatus

TOLD = StopToldRecord(at=1.0)
STOPPED_AND_DONE = ExitRecord(cause=ExitCause.STOPPED, code=0)  # the order to stop came when it was about to end
MODES = pytest.mark.parametrize("deterministic", [False, True], ids=["ordinary", "deterministic"])


def at_its_rung(*, deterministic: bool, **overrides: Any) -> Advised:
    h = Advised().begin(deterministic=deterministic, **overrides)
    h.decide(until_step=1)
    h.started(1)
    return h


def settle(h: Advised) -> None:
    h.take(Queue.TUNER)
    h.restart()


# ── at a rung ───────────────────────────────────────────────────────────────────────────────────
@MODES
@pytest.mark.parametrize("final", [(a_final(0.1),), ()], ids=["break and a final metric", "return"])
@pytest.mark.parametrize("record", [EXITED, STOPPED_AND_DONE, CRASHED], ids=["exited", "stopped", "failed"])
def test_a_trial_that_leaves_when_it_is_told_rests_at_its_rung(
    deterministic: bool,
    final: tuple[Any, ...],
    record: ExitRecord,
) -> None:
    h = at_its_rung(deterministic=deterministic)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD, *final)
    h.exit(1, record)
    settle(h)

    assert h.statuses() == {1: "paused"}
    assert h.told_to_rest() == [(1, 1)]
    assert h.trial(1).final == {}
    assert h.told() == []


@MODES
def test_the_final_metric_of_half_the_way_is_kept_with_its_attempt(deterministic: bool) -> None:
    h = at_its_rung(deterministic=deterministic)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD, a_final(0.1), a_final(accuracy=0.7))
    h.exit(1, EXITED)
    settle(h)

    (attempt,) = h.store.queries.attempts(h.experiment.id, 1)
    assert attempt.half_way == {"loss": 0.1, "accuracy": 0.7}
    assert [m.step for m in h.store.queries.metrics(h.experiment.id, 1)] == [1]


@MODES
@pytest.mark.parametrize("record", [EXITED, STOPPED_AND_DONE], ids=["exited", "stopped"])
def test_a_trial_that_ends_at_its_rung_without_having_been_told_has_ended(
    deterministic: bool,
    record: ExitRecord,
) -> None:
    h = at_its_rung(deterministic=deterministic)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), a_final(0.1))
    h.exit(1, record)
    settle(h)

    assert h.statuses() == {1: "succeeded"}
    assert h.trial(1).value == 0.1


@MODES
def test_it_has_ended_too_where_its_result_is_the_last_that_it_reported(deterministic: bool) -> None:
    h = at_its_rung(deterministic=deterministic, trial={"final": FinalFrom.LAST})
    h.report(1, an_intermediate(1, 0.5))
    h.exit(1, EXITED)
    settle(h)

    assert h.statuses() == {1: "succeeded"}
    assert h.trial(1).value == 0.5


@MODES
def test_told_it_rests_where_its_result_is_the_last_that_it_reported(deterministic: bool) -> None:
    h = at_its_rung(deterministic=deterministic, trial={"final": FinalFrom.LAST})
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD)
    h.exit(1, EXITED)
    settle(h)

    assert h.statuses() == {1: "paused"}


@MODES
def test_promoted_it_ends_from_its_checkpoint_with_a_result_that_counts(deterministic: bool) -> None:
    h = at_its_rung(deterministic=deterministic)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD, a_final(0.9))
    h.exit(1, EXITED)
    settle(h)
    h.ready()
    h.connect()
    h.promote(1)
    h.report(1, a_final(0.1))
    h.exit(1, EXITED)
    settle(h)

    assert h.statuses() == {1: "succeeded"}
    assert h.trial(1).value == 0.1
    assert [a.half_way for a in h.store.queries.attempts(h.experiment.id, 1)] == [{"loss": 0.9}, None]


def test_a_restart_between_the_word_and_the_final_metric_changes_nothing() -> None:
    h = at_its_rung(deterministic=False)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD)
    h.restart()
    h.ready()
    h.connect(h.observed(1))
    h.report(1, a_final(0.1))
    h.exit(1, EXITED)

    assert h.statuses() == {1: "paused"}


# ── deterministic: what happened just then decides nothing ──────────────────────────────────────
def det_at_its_rung() -> Advised:
    return at_its_rung(deterministic=True)


def test_deterministic_a_trial_is_not_stopped_while_it_may_end_at_its_rung() -> None:
    h = det_at_its_rung()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    assert h.orders(Stop) == []
    h.report(1, TOLD)
    assert [order.reason for order in h.orders(Stop)] == ["rung_reached"]


def test_deterministic_a_trial_that_goes_on_beyond_its_rung_is_stopped_and_its_end_is_none() -> None:
    h = det_at_its_rung()
    h.report(1, an_intermediate(1, 0.5))
    h.report(1, an_intermediate(2, 0.4), an_intermediate(3, 0.3))
    assert [order.reason for order in h.orders(Stop)] == ["rung_reached"]
    h.report(1, a_final(0.1))
    h.exit(1, EXITED)
    settle(h)

    assert h.statuses() == {1: "paused"}
    assert [m.step for m in h.store.queries.metrics(h.experiment.id, 1)] == [1]


def test_deterministic_one_that_says_nothing_is_stopped_after_its_grace() -> None:
    h = det_at_its_rung()
    h.report(1, an_intermediate(1, 0.5))
    h.after(h.experiment.spec.trial.stop_grace_s + 11.0)
    assert [order.reason for order in h.orders(Stop)] == ["rung_reached"]


def test_deterministic_an_agent_that_comes_back_does_not_stop_it_either() -> None:
    h = det_at_its_rung()
    h.report(1, an_intermediate(1, 0.5))
    h.connect(h.observed(1))
    assert h.orders(Stop) == []
    h.report(1, a_final(0.1))
    h.exit(1, EXITED)
    settle(h)
    assert h.statuses() == {1: "succeeded"}


def test_deterministic_one_killed_before_it_was_told_comes_to_its_rung_once_more() -> None:
    h = Advised().begin(deterministic=True)
    h.decide(until_step=2)
    h.started(1)
    h.report(1, an_intermediate(1, 0.6), a_checkpoint_record(1), an_intermediate(2, 0.5), a_checkpoint_record(2))
    h.exit(1, KILLED)

    (launch,) = h.orders(Launch)
    assert (launch.spec.until_step, [c.step for c in launch.spec.checkpoints]) == (2, [1])
    h.report(1, an_intermediate(2, 0.5), a_checkpoint_record(2), a_final(0.1))
    h.exit(1, EXITED)
    settle(h)
    assert h.statuses() == {1: "succeeded"}


def test_deterministic_one_killed_after_it_was_told_rests_with_what_it_saved() -> None:
    h = det_at_its_rung()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD, a_final(0.2))
    h.exit(1, KILLED)
    settle(h)

    assert h.statuses() == {1: "paused"}


# ── told for another reason ─────────────────────────────────────────────────────────────────────
def test_a_trial_that_leaves_for_a_stop_of_the_experiment_goes_on_with_it(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.stop()
    h.report(1, TOLD, a_final(0.1))
    h.exit(1, EXITED)
    assert h.statuses() == {1: "paused"}

    h.resume()
    (launch,) = h.orders(Launch)
    assert [c.step for c in launch.spec.checkpoints] == [1]
    h.report(1, a_final(0.05))
    h.exit(1, EXITED)
    assert h.trial(1).value == 0.05


def test_a_trial_that_was_done_before_the_stop_came_to_it_has_succeeded(h: Harness) -> None:
    h.run()
    h.stop()
    h.report(1, an_intermediate(1, 0.5), a_final(0.1))
    h.exit(1, STOPPED_AND_DONE)

    assert h.statuses() == {1: "succeeded"}


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_trial_that_leaves_for_a_signal_from_outside_goes_on_and_is_not_charged(h: Harness, code: int) -> None:
    h.run()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), TOLD, a_final(0.9))
    h.exit(1, ExitRecord(cause=ExitCause.EXITED, code=code))

    trial = h.trial(1)
    assert (trial.status, trial.attempts, trial.charged, trial.final) == (TrialStatus.RUNNING, 2, 0, {})
    h.report(1, an_intermediate(2, 0.4), a_final(0.3))
    h.exit(1, EXITED)
    assert h.trial(1).value == 0.3


def test_signals_from_outside_without_progress_come_to_an_end(h: Harness) -> None:
    h.run()
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT):
        h.after(RETRY_PAUSE_LIMIT_S)
        h.report(1, TOLD)
        h.exit(1, EXITED)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.FAILED, TrialReason.CRASH_LOOP)


@MODES
def test_a_trial_that_the_assessor_stops_is_early_stopped_with_its_last_value(deterministic: bool) -> None:
    h = Harness()
    h.run(assessor=AlgorithmSpec(name="median_stop"), deterministic=deterministic)
    h.report(1, an_intermediate(1, 0.5))
    h.advise_stop(1)
    h.report(1, TOLD, a_final(0.1))
    h.exit(1, EXITED)

    trial = h.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.EARLY_STOPPED, TrialReason.STOPPED_BY_ASSESSOR)
    assert (trial.value, trial.final) == (0.5, {})
    assert h.experiment.best_number is None


def test_a_trial_that_missed_its_heartbeat_and_leaves_is_tried_again(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 5.0, "max_attempts": 2})
    h.after(6.0)
    h.report(1, TOLD, a_final(0.1))
    h.exit(1, STOPPED_AND_DONE)

    assert (h.trial(1).status, h.trial(1).charged) == (TrialStatus.RUNNING, 1)


def test_the_word_is_taken_once() -> None:
    h = at_its_rung(deterministic=False)
    h.report(1, TOLD, a_final(0.1), TOLD)
    assert h.attempt(1).half_way == {"loss": 0.1}


def test_a_trial_that_was_told_and_is_stopped_on_its_machine_rests() -> None:
    h = at_its_rung(deterministic=True)
    h.report(1, an_intermediate(1, 0.5), TOLD)
    h.exit(1, STOPPED)
    settle(h)
    assert h.statuses() == {1: "paused"}


def test_deterministic_a_final_metric_after_the_advisors_late_word_is_no_result() -> None:
    h = Advised().begin(deterministic=True)
    h.decide(until_step=5)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    h.pause_at()
    h.report(1, CooperationRecord(at=1.0), a_final(0.1))

    assert h.attempt(1).half_way == {"loss": 0.1}
    assert h.trial(1).final == {}
