"""Trials of preemptible experiments leave for others of a higher priority, saved and uncharged."""

from __future__ import annotations

from typing import Any

from tests.unit.dispatcher.harness import STOPPED, Harness, a_checkpoint_record, a_final
from tests.unit.dispatcher.test_devices import gpus
from tests.unit.dispatcher.test_quota_groups import begin_other, other
from trials.wire.messages import Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.limits import PREEMPTED_AFTER_S, PREEMPTION_LOOK_S
from tuner_service.domain.trial import TrialReason, TrialStatus


def begin(h: Harness, *, trials: int = 1, **changed: Any) -> None:
    """As many devices as trials, all of them held by trials of priority 0."""
    h.connect(devices=gpus(trials))
    h.create(**({"preemptible": True, "trial": {"gpus": 1.0}, "budget": {"trials": 20, "parallel": trials}} | changed))
    h.ready()
    for number in range(1, trials + 1):
        h.suggest()
        h.started(number)


def begin_urgent(h: Harness, *, trials: int = 1, priority: int = 5) -> None:
    begin_other(h, "default", trials=trials)
    h.handle(c.ExperimentChanged(at=h.at, experiment_id="other", priority=priority))


def save(h: Harness, number: int = 1, step: int = 1) -> None:
    h.report(number, a_checkpoint_record(step))


def stopped(h: Harness) -> list[tuple[int, str]]:
    return [(order.key.number, order.reason) for order in h.orders(Stop)]


def test_a_trial_that_has_run_and_saved_leaves_for_a_higher_priority_and_goes_on_uncharged(h: Harness) -> None:
    begin(h)
    save(h)
    h.after(PREEMPTED_AFTER_S)

    begin_urgent(h)

    assert stopped(h) == [(1, TrialReason.PREEMPTED.value)]
    assert "makes room for trial other/1 of priority 5" in h.trial(1).message
    assert h.journal("trial_preempted") == [{"number": 1, "attempt": 1, "for": "other/1", "priority": 5}]
    h.exit(1, STOPPED)
    assert (h.trial(1).status, h.trial(1).charged, h.trial(1).deaths_without_progress) == (TrialStatus.WAITING, 0, 0)
    assert list(other(h).attempts) == [1]


def test_it_goes_on_from_its_checkpoint_once_there_is_room_again(h: Harness) -> None:
    begin(h)
    save(h)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h)
    h.exit(1, STOPPED)

    h.handle(c.ExperimentStopped(at=h.at, experiment_id="other"))
    urgent = other(h).attempts[1]
    h.exit_as(urgent, STOPPED)

    assert (h.trial(1).status, h.attempt(1).key.attempt, h.attempt(1).restored_step) == (TrialStatus.RUNNING, 2, 1)


def test_nothing_leaves_where_the_experiment_does_not_allow_it(h: Harness) -> None:
    begin(h, preemptible=False)
    save(h)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h)
    h.after(PREEMPTION_LOOK_S)

    assert stopped(h) == []
    h.change(preemptible=True)
    assert stopped(h) == [(1, TrialReason.PREEMPTED.value)], "a person may allow it later"


def test_what_has_saved_nothing_in_this_attempt_is_let_run(h: Harness) -> None:
    begin(h)
    begin_urgent(h)

    h.after(PREEMPTED_AFTER_S)
    assert stopped(h) == []

    save(h)
    h.after(PREEMPTION_LOOK_S)
    assert stopped(h) == [(1, TrialReason.PREEMPTED.value)]


def test_what_has_just_begun_is_let_run_for_a_while_also_when_it_goes_on(h: Harness) -> None:
    begin(h)
    save(h)
    begin_urgent(h)
    h.after(PREEMPTED_AFTER_S - 1)
    assert stopped(h) == []
    h.after(PREEMPTION_LOOK_S)
    assert stopped(h) == [(1, TrialReason.PREEMPTED.value)]
    h.exit(1, STOPPED)
    h.exit_as(other(h).attempts[1], STOPPED)  # and the urgent one waits for its next attempt

    assert list(other(h).attempts) == [1]
    assert h.trial(1).status is TrialStatus.WAITING


def test_an_attempt_that_was_not_confirmed_yet_is_not_asked(h: Harness) -> None:
    begin(h)
    save(h)
    h.exit(1, STOPPED)
    begin_urgent(h)

    h.after(PREEMPTED_AFTER_S)

    assert stopped(h) == []


def test_an_attempt_that_only_restored_has_saved_nothing(h: Harness) -> None:
    begin(h)
    save(h)
    h.exit(1, STOPPED)
    h.started(1)
    begin_urgent(h)

    h.after(PREEMPTED_AFTER_S)
    h.after(PREEMPTION_LOOK_S)
    assert stopped(h) == []

    save(h, step=2)
    h.after(PREEMPTION_LOOK_S)
    assert stopped(h) == [(1, TrialReason.PREEMPTED.value)]


def test_nobody_leaves_twice_for_the_same_trial(h: Harness) -> None:
    begin(h, trials=2)
    save(h, 1)
    save(h, 2)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h)

    h.after(PREEMPTION_LOOK_S)

    assert [h.trial(n).status for n in (1, 2)].count(TrialStatus.STOPPING) == 1


def test_a_trial_that_ends_well_while_it_is_asked_to_leave_has_ended(h: Harness) -> None:
    begin(h)
    save(h)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h)

    h.report(1, a_final(0.5))
    h.exit(1)

    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_a_clock_that_is_set_back_does_not_keep_it_from_looking(h: Harness) -> None:
    begin(h)
    save(h)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h, priority=0)
    assert stopped(h) == []
    h.dispatcher.state.short_since = h.at + 3_600

    h.after(0.5)

    assert h.dispatcher.state.short_since == h.at


def test_after_a_restart_the_one_that_was_to_leave_does_so_and_no_other(h: Harness) -> None:
    begin(h, trials=2)
    save(h, 1)
    save(h, 2)
    h.after(PREEMPTED_AFTER_S)
    begin_urgent(h)
    (leaving,) = [n for n in (1, 2) if h.trial(n).status is TrialStatus.STOPPING]

    h.restart()
    h.connect(*(h.observed(n) for n in (1, 2)), devices=gpus(2))
    h.after(PREEMPTION_LOOK_S)

    assert [n for n in (1, 2) if h.trial(n).status is TrialStatus.STOPPING] == [leaving]


def test_nobody_leaves_on_a_node_that_is_away(h: Harness) -> None:
    begin(h)
    save(h)
    h.after(PREEMPTED_AFTER_S)
    h.connect(agent_id="agent-2", devices=gpus(1, occupied=True))
    h.disconnect()

    begin_urgent(h)

    assert h.trial(1).status is TrialStatus.RUNNING


def test_a_change_of_what_may_be_preempted_stands_in_the_journal(h: Harness) -> None:
    begin(h)

    h.change(preemptible=False)
    h.change(preemptible=False)

    assert h.journal("experiment_changed") == [{"preemptible": False}]
