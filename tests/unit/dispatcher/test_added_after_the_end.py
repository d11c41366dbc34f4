"""Trials added to an experiment that has ended: these run and nothing else, the tuner is told, and it ends again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.dispatcher.advised import Advised
from tests.unit.dispatcher.harness import CRASHED, STOPPED, Harness, a_final, an_intermediate
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus

LONG_S = 100.0
ASSESSED = AlgorithmSpec(name="median_stop")


def completed(h: Harness, *, failed: bool = True, **overrides: object) -> None:
    """One trial that failed, and one that succeeded: the budget of one trial is used up."""
    h.run(budget={"trials": 1, "parallel": 1, "failures": 5}, **overrides)
    if failed:
        h.exit(1, CRASHED)
        h.start_next()
        h.succeed(2)
    else:
        h.succeed(1)
    assert h.experiment.status is ExperimentStatus.COMPLETED


def learn(h: Harness) -> None:
    """The tuner answers whatever it is told and asked."""
    while h.pending(Queue.TUNER):
        if h.xs.requests:
            h.suggest()
        else:
            h.take(Queue.TUNER)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_failed_trial_of_a_completed_experiment_is_tried_again_and_nothing_else(
    h: Harness, deterministic: bool
) -> None:
    completed(h, deterministic=deterministic)
    asked = h.asked_for()
    h.add_trial(retry_of=1)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.RUNNING, ExperimentReason.TRIALS_ADDED)
    h.ready()
    h.take(Queue.TUNER)
    assert h.statuses()[3] == "running"
    h.report(3, a_final(0.4))
    h.exit(3)
    assert h.told()[-1] == 3
    assert h.experiment.status is ExperimentStatus.RUNNING, "the tuner has not learned it yet"
    learn(h)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.COMPLETED, ExperimentReason.BUDGET_REACHED)
    assert h.pending(Queue.TUNER) == []
    assert h.asked_for() == asked
    assert (h.experiment.best_number, h.experiment.stop_to) == (3, None)
    with pytest.raises(ConflictError, match="used up"):
        h.resume()  # it used none of the budget, and gave none


def test_one_that_fails_again_ends_it_again_whatever_the_budget_of_failures(h: Harness) -> None:
    completed(h)
    for number in range(3, 12):
        h.add_trial(retry_of=1)
        h.ready()
        h.take(Queue.TUNER)
        h.exit(number, CRASHED)
        learn(h)
        assert (h.experiment.status, h.experiment.reason) == (
            ExperimentStatus.COMPLETED,
            ExperimentReason.BUDGET_REACHED,
        )
    assert h.told()[-1] == 11


def test_of_a_stopped_experiment_what_was_interrupted_rests_until_it_is_resumed(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 9, "parallel": 2})
    h.exit(1, CRASHED)
    h.stop()
    h.exit(2, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPED
    rested = {number: status for number, status in h.statuses().items() if status == "paused"}
    h.add_trial(retry_of=1)
    h.ready()
    learn(h)
    added = max(number for number, status in h.statuses().items() if status == "running")
    assert [n for n, status in h.statuses().items() if status == "running"] == [added]
    assert {number: h.statuses()[number] for number in rested} == rested
    h.restart()
    h.connect(h.observed(added))
    h.ready()
    h.report(added, a_final(0.4))
    h.exit(added)
    learn(h)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.STOPPED, ExperimentReason.REQUESTED)
    h.resume()
    assert h.experiment.status is ExperimentStatus.RUNNING
    assert not h.experiment.runs_added_only


@pytest.mark.parametrize("trials", [1, 9], ids=["its budget is used up", "it has budget left"])
def test_of_a_deterministic_one_trials_that_ask_for_further_parameters_rest_until_their_turn(
    h: Harness, trials: int
) -> None:
    h.run(budget={"trials": trials, "parallel": 1}, deterministic=True)
    h.stop()
    h.exit(1, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPED
    h.add_trial()
    h.ready()
    assert h.statuses() == {1: "paused", 2: "running"}

    h.want(2, 1)
    h.exit(2, STOPPED)
    learn(h)

    assert (h.experiment.status, h.statuses()) == (ExperimentStatus.STOPPED, {1: "paused", 2: "paused"})
    assert "which comes when the experiment is resumed" in h.trial(2).message
    h.resume()
    h.ready()
    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.statuses() == {1: "running", 2: "waiting"}


def test_of_a_deterministic_one_a_request_that_is_answered_soon_keeps_nothing_from_its_turn(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 2}, deterministic=True)
    assert h.xs.requests
    h.stop()
    h.exit(1, STOPPED)

    h.add_trial()
    h.ready()

    assert h.xs.requests
    assert h.experiment.runs_added_only


def test_of_a_failed_experiment_one_trial_is_tried_again_and_it_fails_again(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1, "failures": 1})
    h.exit(1, CRASHED)
    assert h.experiment.status is ExperimentStatus.FAILED
    h.add_trial(retry_of=1)
    h.ready()
    added = max(h.statuses())
    while h.statuses()[added] != "running":
        h.take(Queue.TUNER) if not h.xs.openings else h.suggest()
    h.report(added, a_final(0.4))
    h.exit(added)
    learn(h)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.FAILED, ExperimentReason.TOO_MANY_FAILURES)
    assert added in h.told()


def test_a_resume_while_they_run_lets_everything_go_on(h: Harness) -> None:
    completed(h)
    h.add_trial(retry_of=1)
    h.resume(trials=4)
    h.ready()
    h.take(Queue.TUNER)
    assert not h.experiment.runs_added_only
    h.report(3, a_final(0.4))
    h.exit(3)
    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.asked_for()[-1] == 4


@pytest.mark.parametrize(("trials", "asks"), [(3, True), (1, False)])
def test_a_budget_that_is_raised_while_they_run_lets_everything_go_on(h: Harness, trials: int, asks: bool) -> None:
    completed(h)
    h.add_trial(retry_of=1)
    h.ready()

    h.change(budget={"trials": trials, "parallel": 2})

    assert h.experiment.runs_added_only is not asks
    assert bool(h.asked_for()) is asks
    if asks:
        assert (h.experiment.reason, h.experiment.message) == (ExperimentReason.REQUESTED, "its budget was raised")


def test_what_is_added_while_they_run_runs_too(h: Harness) -> None:
    completed(h)
    h.add_trial(0.3)
    h.add_trial(0.4)
    h.ready()
    h.take(Queue.TUNER)
    h.succeed(3)
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.succeed(4)
    learn(h)
    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_the_assessor_judges_what_was_added(h: Harness) -> None:
    completed(h, failed=False, assessor=ASSESSED)
    h.add_trial(0.3)
    h.ready()
    h.take(Queue.TUNER)
    h.report(2, an_intermediate(0, 0.9))
    h.advise_stop(2)
    h.exit(2, STOPPED)
    learn(h)
    assert h.statuses()[2] == "early_stopped"
    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_a_pause_holds_it_and_a_stop_ends_it(h: Harness) -> None:
    completed(h)
    h.add_trial(0.3)
    h.pause()
    assert h.experiment.status is ExperimentStatus.PAUSED
    assert h.statuses()[3] in {"waiting", "running"}
    h.stop()
    if 3 in h.xs.attempts:
        h.exit(3, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPED


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_advisor_that_is_done_is_told_of_what_was_added(deterministic: bool) -> None:
    h = Advised().begin(budget={"trials": 1, "parallel": 1}, deterministic=deterministic)
    h.decide()
    h.report(1, an_intermediate(1, 0.5), a_final(0.5))
    h.exit(1)
    h.take(Queue.TUNER)
    assert h.experiment.status is ExperimentStatus.COMPLETED
    h.add_trial(0.3)
    h.ready()
    h.take(Queue.TUNER)
    h.report(2, an_intermediate(1, 0.4), a_final(0.4))
    h.exit(2)
    learn(h)

    assert h.statuses()[2] == "succeeded"
    assert h.told() == [1, 2]
    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.COMPLETED, ExperimentReason.BUDGET_REACHED)


def test_one_that_ran_out_of_time_ends_for_that_reason_again(h: Harness) -> None:
    h.run(budget={"trials": 9, "parallel": 1, "duration_s": 50.0})
    h.after(LONG_S)
    h.exit(1, STOPPED)
    assert h.experiment.reason is ExperimentReason.DURATION_REACHED
    h.add_trial(0.3)
    h.ready()
    while 2 not in h.statuses() or h.statuses()[2] != "running":
        h.suggest() if h.xs.openings else h.take(Queue.TUNER)
    h.succeed(2)
    learn(h)
    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.COMPLETED,
        ExperimentReason.DURATION_REACHED,
    )


def test_one_whose_space_is_exhausted_ends_for_that_reason_again(h: Harness) -> None:
    h.begin(budget={"trials": 9, "parallel": 1})
    h.suggest()
    h.started(1)
    h.succeed(1)
    h.take(Queue.TUNER, upto=h.pending(Queue.TUNER)[0].line)
    h.suggest_no_more()
    assert h.experiment.reason is ExperimentReason.SPACE_EXHAUSTED
    h.add_trial(0.3)
    h.ready()
    h.take(Queue.TUNER)
    added = max(h.statuses())
    h.succeed(added)
    learn(h)
    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.COMPLETED, ExperimentReason.SPACE_EXHAUSTED)


def test_nothing_is_added_to_one_whose_quota_group_is_gone(h: Harness) -> None:
    completed(h)
    h.xs.experiment = replace(h.experiment, spec=replace(h.experiment.spec, quota_group="gone"))
    with pytest.raises(ConflictError, match="was deleted"):
        h.add_trial(0.3)
    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_its_end_is_told_once_its_further_parameters_are_chosen(h: Harness) -> None:
    completed(h)
    h.add_trial(0.3)
    h.ready()
    h.take(Queue.TUNER)
    h.want(3, 1)
    h.report(3, a_final(0.4))
    h.exit(3)
    assert h.experiment.status is ExperimentStatus.RUNNING
    learn(h)
    assert h.told()[-1] == 3
    assert h.experiment.status is ExperimentStatus.COMPLETED
