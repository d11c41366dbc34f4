"""Deterministic experiments with an advisor: what comes after a rung is no part of a trial, whatever was killed."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.advised import Advised
from tests.unit.dispatcher.harness import (
    EXITED,
    KILLED,
    STOPPED,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.messages import DeleteCheckpoint, Launch
from tuner_service.dispatcher.items import (
    Queue,
)
from tuner_service.dispatcher.limits import DEATHS_WITHOUT_PROGRESS_LIMIT
from tuner_service.domain.errors import ConflictError


@pytest.fixture
def det() -> Advised:
    return Advised().begin(deterministic=True)


def test_what_comes_after_the_rung_is_no_part_of_the_trial(det: Advised) -> None:
    det.decide(until_step=1)
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), an_intermediate(2, 0.1), a_checkpoint_record(2))
    assert [order.name for order in det.orders(DeleteCheckpoint)] == ["step-2"]
    det.report(1, an_intermediate(3, 0.1), a_final(0.1))
    det.exit(1, EXITED)
    assert [m.step for m in det.store.queries.metrics(det.experiment.id, 1)] == [1]
    assert [c.step for c in det.xs.checkpoints[1]] == [1]


def test_a_rest_waits_until_its_reports_are_judged(det: Advised) -> None:
    det.decide(until_step=1)
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    det.exit(1, EXITED)
    assert det.statuses() == {1: "stopping"}
    det.take(Queue.TUNER)
    assert det.statuses() == {1: "paused"}
    assert det.told_to_rest() == [(1, 1)]


def test_rests_are_told_in_the_order_of_decisions() -> None:
    det = Advised().begin(deterministic=True, budget={"trials": 4, "parallel": 2})
    det.decide(until_step=1)
    det.decide(until_step=1)
    det.come_to_rest(2, 1)
    assert det.told_to_rest() == []
    det.come_to_rest(1, 1)
    assert det.told_to_rest() == [(1, 1)], "the next decision knows the first rest, and not the second"
    det.decide(until_step=1)
    assert det.told_to_rest() == [(1, 1), (2, 1)]


def test_a_trial_killed_before_it_saved_at_its_rung_comes_there_once_more(det: Advised) -> None:
    det.decide(until_step=1)
    det.started(1)
    det.report(1, an_intermediate(1, 0.5))
    det.exit(1, KILLED)
    assert det.statuses() == {1: "running"}
    assert det.attempt(1).key.attempt == 2
    det.come_to_rest(1, 1)
    assert det.statuses() == {1: "paused"}


def test_it_does_not_come_there_for_ever(det: Advised) -> None:
    det.decide(until_step=1)
    det.started(1)
    det.report(1, an_intermediate(1, 0.5))
    for _ in range(DEATHS_WITHOUT_PROGRESS_LIMIT):
        if 1 in det.xs.attempts:
            if not det.trial(1).rungs.rung_reached:
                det.started(1)
                det.report(1, an_intermediate(1, 0.5))
            det.exit(1, KILLED)
    det.take(Queue.TUNER)
    assert det.statuses() == {1: "paused"}


def test_a_pause_while_the_trial_ran_on_brings_it_to_that_step_once_more(det: Advised) -> None:
    det.decide()
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), an_intermediate(2, 0.4), a_checkpoint_record(2))
    det.pause_at(0)
    assert [m.step for m in det.store.queries.metrics(det.experiment.id, 1)] == [1]
    det.exit(1, STOPPED)
    (launch,) = det.orders(Launch)
    assert (launch.spec.until_step, launch.spec.checkpoints) == (1, ())
    det.come_to_rest(1, 1)
    assert det.told_to_rest() == [(1, 1)]


def test_a_pause_of_a_trial_that_came_to_its_end_brings_it_back(det: Advised) -> None:
    det.decide()
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), an_intermediate(2, 0.4), a_final(0.4))
    det.exit(1, EXITED)
    assert det.statuses() == {1: "running"}
    det.pause_at(0)
    assert det.attempt(1).key.attempt == 2
    assert det.trial(1).rungs.until_step == 1


def test_a_pause_at_a_saved_step_needs_no_other_run(det: Advised) -> None:
    det.decide()
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1), an_intermediate(2, 0.4))
    det.report(1, a_final(0.4))
    det.exit(1, EXITED)
    det.pause_at(0)
    assert det.statuses() == {1: "paused"}


def test_a_pause_wins_over_a_later_rung(det: Advised) -> None:
    det.decide(until_step=2)
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    det.report(1, an_intermediate(2, 0.5), a_checkpoint_record(2))
    det.pause_at()
    assert det.trial(1).rungs.rung_step == 1
    det.exit(1, EXITED)
    assert det.told_to_rest() == [(1, 1)]


def test_a_pause_of_a_trial_that_made_room_holds_when_it_goes_on(det: Advised) -> None:
    det.decide()
    det.started(1)
    det.report(1, an_intermediate(1, 0.5), an_intermediate(2, 0.5))
    det.stop()
    det.exit(1, STOPPED)
    assert det.trial(1).reason.value == "experiment_stopped"
    det.resume()
    det.ready()
    assert det.trial(1).rungs.until_step is None
    det.pause_at(0)
    assert det.trial(1).rungs.rung_step == 1


def test_a_person_may_give_up_what_rests(det: Advised) -> None:
    det.decide(until_step=1)
    det.come_to_rest(1, 1)
    det.stop_trial(1)
    det.decide()
    assert det.told() == [1]
    with pytest.raises(ConflictError):
        det.stop_trial(1)
