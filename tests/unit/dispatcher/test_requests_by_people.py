"""Pause, resume, stop, delete, and giving one trial up."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import CRASHED, KILLED, STOPPED, Harness, an_intermediate
from trials.wire.messages import Forget, Launch, RemoveExperiment, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.domain.errors import ConflictError, NotFoundError, TunerServiceError
from tuner_service.domain.experiment import AlgorithmSpec, CodeOrigin, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialReason, TrialStatus


# ── pause ───────────────────────────────────────────────────────────────────────────────────────
def test_while_paused_nothing_is_asked_for_or_launched_and_running_trials_go_on(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 3})
    h.pause()
    h.suggest()  # was outstanding
    assert h.statuses() == {1: "running", 2: "waiting"}
    assert h.asked_for() == []
    h.succeed(1)
    assert h.statuses() == {1: "succeeded", 2: "waiting"}

    h.resume()
    assert h.statuses() == {1: "succeeded", 2: "running"}
    assert h.asked_for() == [3]


def test_a_trial_that_dies_while_paused_waits_for_the_resume(h: Harness) -> None:
    h.run()
    h.pause()
    h.exit(1, KILLED)
    assert h.statuses() == {1: "waiting"}
    h.resume()
    assert h.statuses() == {1: "running"}


def test_a_paused_experiment_keeps_its_worker_over_a_restart(h: Harness) -> None:
    h.begin()
    h.pause()
    h.restart()

    assert len(h.orders(e.StartWorker)) == 1
    h.resume()
    assert h.orders(e.StartWorker) == []


# ── stop and resume ─────────────────────────────────────────────────────────────────────────────
def test_a_stop_asks_every_trial_and_is_done_when_the_last_attempt_has_ended(h: Harness) -> None:
    h.run(trials=2)
    h.stop()
    assert [order.reason for order in h.orders(Stop)] == ["experiment_stopped"] * 2
    assert h.statuses() == {1: "stopping", 2: "stopping"}
    h.exit(1, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPING
    h.exit(2, STOPPED)

    assert h.experiment.status is ExperimentStatus.STOPPED
    assert h.statuses() == {1: "paused", 2: "paused"}
    assert h.told() == []
    assert h.orders(e.StopWorker) != []


def test_a_stop_without_trials_is_done_at_once(h: Harness) -> None:
    h.begin()
    h.stop()

    assert h.experiment.status is ExperimentStatus.STOPPED


def test_stopping_a_stopped_experiment_changes_nothing(h: Harness) -> None:
    h.begin()
    h.stop()

    assert h.stop() == []
    assert not h.changes


def test_a_waiting_trial_is_paused_by_a_stop(h: Harness) -> None:
    h.create()
    h.ready()
    h.suggest()
    h.stop()

    assert h.statuses() == {1: "paused"}


def test_a_trial_that_finishes_while_it_is_stopped_has_succeeded(h: Harness) -> None:
    h.run()
    h.stop()
    h.succeed(1)

    assert h.statuses() == {1: "succeeded"}
    assert h.told() == [1]


def test_a_trial_that_crashes_while_it_is_stopped_goes_on_after_the_resume(h: Harness) -> None:
    h.run()
    h.stop()
    h.exit(1, CRASHED)

    assert h.statuses() == {1: "paused"}
    assert h.trial(1).charged == 0


def test_resume_continues_paused_trials_in_new_attempts_of_the_same_number(h: Harness) -> None:
    h.run(trials=2)
    h.stop()
    for number in (1, 2):
        h.exit(number, STOPPED)
    h.after(1000)
    h.resume()

    assert h.experiment.status is ExperimentStatus.RUNNING
    assert [order.key.attempt for order in h.orders(Launch)] == [2, 2]
    assert len(h.orders(e.StartWorker)) == 1


def test_a_paused_experiment_can_be_stopped(h: Harness) -> None:
    h.run()
    h.pause()
    h.stop()
    h.exit(1, STOPPED)

    assert h.experiment.status is ExperimentStatus.STOPPED


def test_a_stopped_experiment_survives_a_restart_and_is_not_continued_by_itself(h: Harness) -> None:
    h.run()
    h.stop()
    h.exit(1, STOPPED)

    assert h.restart() == []
    h.resume()
    h.connect()
    assert h.statuses() == {1: "running"}


def test_resuming_a_running_experiment_changes_nothing(h: Harness) -> None:
    h.begin()

    assert h.resume() == []
    assert not h.changes


# ── budgets ─────────────────────────────────────────────────────────────────────────────────────
def completed(h: Harness) -> Harness:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    h.succeed(1)
    return h


def test_a_completed_experiment_goes_on_with_a_raised_budget(h: Harness) -> None:
    completed(h).resume(trials=2)

    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.asked_for() == [2]
    (changed,) = h.journal("experiment_changed")
    assert changed["budget"] == {"trials": 2, "parallel": 1, "duration_s": None, "failures": 10}


def test_a_running_experiment_may_be_given_more(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 1})
    h.resume(parallel=3)

    assert h.asked_for() == [2]
    assert h.orders(e.StartWorker) == []


def test_a_completed_experiment_without_a_raised_budget_says_how_to_raise_it(h: Harness) -> None:
    with pytest.raises(ConflictError, match="budget of 1 trial is used up; raise it with `tuner resume 8f3k2 --tri"):
        completed(h).resume()


def test_fewer_trials_than_there_are_is_refused(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 9, "parallel": 3})
    with pytest.raises(ConflictError, match="has 3 trials of its budget already, so 2 are too few"):
        h.resume(trials=2)
    h.resume(trials=3)
    h.suggest()
    assert h.asked_for() == []


def test_a_lowered_parallelism_is_reached_as_trials_end(h: Harness) -> None:
    h.run(trials=3, budget={"trials": 9, "parallel": 3})
    h.resume(parallel=1)
    h.succeed(1)
    h.succeed(2)
    assert h.asked_for() == []
    h.succeed(3)
    assert h.asked_for() == [4]


@pytest.mark.parametrize(
    ("tuner", "why"),
    [("grid", "every point of the search space was tried"), ("batch", "the tuner has nothing left to propose")],
)
def test_an_exhausted_space_cannot_be_resumed(h: Harness, tuner: str, why: str) -> None:
    h.run(trials=1, tuner=AlgorithmSpec(name=tuner))
    h.suggest_no_more()
    h.succeed(1)

    assert h.experiment.message == why
    with pytest.raises(ConflictError, match=f"cannot go on: {why}; change its search space"):
        h.resume(trials=100)


def test_resume_takes_a_new_code_revision_for_the_trials_to_come(h: Harness) -> None:
    h.run(trial={"max_attempts": 2, "code_digest": "a"})
    origin = CodeOrigin(commit="c", is_dirty=True, changes_digest="d")
    h.handle(
        c.ExperimentResumed(
            at=h.at,
            experiment_id=EXPERIMENT_ID,
            code=b"tar",
            code_digest="b",
            code_origin=origin,
            code_changes=b"diff",
        )
    )
    assert h.changes.blobs == {"b": b"tar", "d": b"diff"}
    assert h.journal("experiment_changed") == [{"code_digest": "b"}]
    h.exit(1, KILLED)

    (launch,) = h.orders(Launch)
    assert launch.spec.code_digest == "b"


def test_resume_may_name_code_that_is_stored_already(h: Harness) -> None:
    h.begin()
    h.handle(c.ExperimentResumed(at=h.at, experiment_id=EXPERIMENT_ID, code_digest="b"))

    assert h.changes.blobs == {}
    assert h.experiment.spec.trial.code_digest == "b"


# ── duration ────────────────────────────────────────────────────────────────────────────────────
def test_an_experiment_ends_when_its_duration_is_over_and_its_trials_can_go_on_later(h: Harness) -> None:
    h.run(budget={"trials": None, "parallel": 1, "duration_s": 100.0})
    h.after(99)
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.after(1)
    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.STOPPING,
        ExperimentReason.DURATION_REACHED,
    )
    h.exit(1, STOPPED)
    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.COMPLETED,
        ExperimentReason.DURATION_REACHED,
    )
    with pytest.raises(ConflictError, match=r"budget of 100 s is used up.*--duration"):
        h.resume()

    h.resume(duration_s=200.0)
    assert h.statuses() == {1: "running"}


def test_pauses_and_downtime_are_not_part_of_the_duration(h: Harness) -> None:
    h.run(budget={"trials": None, "parallel": 1, "duration_s": 100.0})
    h.after(40)
    h.pause()
    h.after(1000)
    h.resume()
    h.after(40)
    h.at += 1000
    h.restart()
    h.after(19)
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.after(1)
    assert h.experiment.reason is ExperimentReason.DURATION_REACHED


def test_a_trial_that_still_waits_when_the_duration_is_over_can_go_on_though_the_trials_are_used_up(
    h: Harness,
) -> None:
    h.create(budget={"trials": 1, "parallel": 1, "duration_s": 100.0})
    h.ready()
    h.after(100)
    assert h.experiment.status is ExperimentStatus.COMPLETED
    h.resume(duration_s=200.0)
    h.ready()
    h.stop()  # its suggestion is outstanding still
    h.resume()
    h.ready()
    h.suggest()
    h.connect()
    assert h.statuses() == {1: "running"}


def test_a_suggestion_that_arrives_while_trials_are_stopped_waits_for_the_next_resume(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 2, "parallel": 2, "duration_s": 100.0}, algorithm_timeout_s=1000.0)
    h.after(100)
    h.suggest()
    h.exit(1, STOPPED)
    assert h.experiment.status is ExperimentStatus.COMPLETED
    assert h.statuses() == {1: "paused", 2: "waiting"}
    h.stop_trial(1)

    h.resume(duration_s=200.0)
    assert h.statuses() == {1: "canceled", 2: "running"}


# ── one trial ───────────────────────────────────────────────────────────────────────────────────
def test_a_person_gives_one_trial_up_and_it_uses_none_of_the_budget(h: Harness) -> None:
    h.run(budget={"trials": 1, "parallel": 1})
    h.report(1, an_intermediate(0, 0.5))
    h.stop_trial(1)
    (stop,) = h.orders(Stop)
    assert stop.reason == "stopped_by_user"
    h.exit(1, STOPPED)

    trial = h.trial(1)
    assert (trial.status, trial.reason, trial.value) == (TrialStatus.CANCELED, TrialReason.STOPPED_BY_USER, None)
    assert h.told() == [1]
    assert h.asked_for() == [2]
    assert h.journal("trial_stop_requested") == [{"number": 1}]


def test_a_waiting_trial_is_given_up_at_once(h: Harness) -> None:
    h.create()
    h.ready()
    h.suggest()
    h.stop_trial(1)

    assert h.statuses() == {1: "canceled"}


def test_a_paused_trial_of_a_stopped_experiment_may_be_given_up(h: Harness) -> None:
    h.run()
    h.stop()
    h.exit(1, STOPPED)
    h.stop_trial(1)

    assert h.statuses() == {1: "canceled"}
    assert h.told() == [1]


def test_a_trial_asked_to_make_room_may_be_given_up_for_good(h: Harness) -> None:
    h.run()
    h.stop()
    h.stop_trial(1)
    h.exit(1, STOPPED)

    assert h.statuses() == {1: "canceled"}


# ── delete ──────────────────────────────────────────────────────────────────────────────────────
def test_an_ended_experiment_is_deleted_with_its_rows_and_folders(h: Harness) -> None:
    completed(h).delete()

    assert h.effects == [e.TellAll(message=RemoveExperiment(experiment_id=EXPERIMENT_ID))]
    assert h.store.queries.experiment(EXPERIMENT_ID) is None
    assert not h.dispatcher.is_busy
    with pytest.raises(NotFoundError):
        h.delete()


def test_an_experiment_stopped_and_deleted_in_one_transaction_leaves_nothing(h: Harness) -> None:
    h.begin()
    h.dispatcher.handle(c.ExperimentStopped(at=h.at, experiment_id=EXPERIMENT_ID))
    h.delete()

    assert h.store.queries.experiment(EXPERIMENT_ID) is None


def test_a_late_attempt_of_a_deleted_experiment_is_forgotten(h: Harness) -> None:
    h.run(budget={"trials": 1, "parallel": 1})
    attempt = h.attempt(1)
    h.succeed(1)
    h.delete()

    assert h.exit_as(attempt) == [e.Tell(agent_id=attempt.agent_id, message=Forget(nonce=attempt.nonce))]


# ── what is refused ─────────────────────────────────────────────────────────────────────────────
def stopping(h: Harness) -> None:
    h.run()
    h.stop()


def stopped(h: Harness) -> None:
    h.begin()
    h.stop()


def paused(h: Harness) -> None:
    h.begin()
    h.pause()


def running(h: Harness) -> None:
    h.run()


def used_up(h: Harness) -> None:
    completed(h)


@pytest.mark.parametrize(
    ("state", "request_", "allowed"),
    [
        (paused, Harness.pause, ("resume", "stop")),
        (stopping, Harness.pause, ("wait",)),
        (stopping, Harness.stop, ("wait",)),
        (stopping, Harness.resume, ("wait",)),
        (stopping, Harness.delete, ("wait",)),
        (stopped, Harness.pause, ("resume", "delete")),
        (used_up, Harness.stop, ("resume", "delete")),
        (used_up, Harness.resume, ("resume with a raised budget", "delete")),
        (running, Harness.delete, ("pause", "stop")),
        (paused, Harness.delete, ("resume", "stop")),
        (used_up, lambda h: h.stop_trial(1), ()),
        (used_up, lambda h: h.stop_trial(9), None),
    ],
)
def test_a_refused_request_says_what_is_allowed_and_changes_nothing(
    h: Harness, state: Callable[[Harness], None], request_: Callable[[Harness], object], allowed: tuple[str, ...] | None
) -> None:
    state(h)
    before = copy.deepcopy(h.dispatcher.state)

    with pytest.raises(TunerServiceError) as refused:
        request_(h)

    assert h.dispatcher.state == before
    assert not h.dispatcher.take_changes()
    if allowed is None:
        assert isinstance(refused.value, NotFoundError)
    else:
        assert isinstance(refused.value, ConflictError)
        assert refused.value.allowed == allowed


@pytest.mark.parametrize("request_", [Harness.pause, Harness.resume, Harness.stop, Harness.delete])
def test_requests_for_an_unknown_experiment_are_refused(h: Harness, request_: Callable[[Harness], object]) -> None:
    with pytest.raises(NotFoundError, match="there is no experiment '8f3k2'"):
        request_(h)
    assert h.dispatcher.state.experiments == {}


def test_a_refused_request_does_not_disturb_those_handled_with_it(h: Harness) -> None:
    h.begin()
    h.dispatcher.handle(c.ExperimentPaused(at=h.at, experiment_id=EXPERIMENT_ID))
    with pytest.raises(ConflictError):
        h.dispatcher.handle(c.ExperimentPaused(at=h.at, experiment_id=EXPERIMENT_ID))
    h.after(0)

    assert h.experiment.status is ExperimentStatus.PAUSED


def test_a_search_has_run_as_long_as_it_was_running_to_the_tenth(h: Harness) -> None:
    h.run(trials=1)
    begun = h.experiment.running_s
    h.at += 0.25
    h.pause()
    h.at += 100.0
    h.resume()
    h.at += 0.5
    h.pause()

    assert h.experiment.running_s - begun == pytest.approx(0.75)
