"""Trials that evaluators ask for, hold by a token, and tell the outcome of."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from tests.unit.dispatcher.harness import Harness
from trials.wire.limits import STEP_MAX
from trials.wire.messages import Launch, Stop
from tuner_service.dispatcher.items import MetricsReported, Queue
from tuner_service.dispatcher.limits import ASSESSOR_REPORTS_LIMIT, DEATHS_WITHOUT_PROGRESS_LIMIT
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError, NotHeldError, UnavailableError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus, FinalFrom, Objective
from tuner_service.domain.trial import EVALUATOR, AttemptStatus, TrialReason, TrialStatus

LEASE_S = 60.0
ASSESSED = AlgorithmSpec(name="median_stop")


def begin(h: Harness, **overrides: Any) -> Harness:
    """An experiment whose trials are asked for, with its worker ready; no agent is there."""
    trial = {"command": (), "lease_s": LEASE_S} | overrides.pop("trial", {})
    h.create(trial=trial, **overrides)
    h.ready()
    return h


@pytest.fixture
def asked(h: Harness) -> Harness:
    """Trial 1 is held by "a"; one more may run."""
    begin(h)
    h.suggest()
    assert h.ask("a") == 1
    return h


# ── asking ──────────────────────────────────────────────────────────────────────────────────────
def test_an_evaluator_is_given_the_next_trial_that_waits(h: Harness) -> None:
    begin(h)
    h.suggest(0.01)
    h.suggest(0.02)

    assert [h.ask("a"), h.ask("b")] == [1, 2]
    trial, attempt = h.trial(1), h.attempt(1)
    assert (trial.status, trial.reason, trial.attempts) == (TrialStatus.RUNNING, TrialReason.ASKED, 1)
    assert (attempt.nonce, attempt.agent_id, attempt.status) == ("a", EVALUATOR, AttemptStatus.RUNNING)
    assert (attempt.started_at, attempt.holdings) == (h.at, ())
    assert h.journal("attempt_launched")[0] == {"number": 1, "attempt": 1}


def test_nothing_is_launched_whatever_agents_there_are(h: Harness) -> None:
    begin(h)
    h.connect()
    h.suggest()
    h.after(20)

    assert h.trial(1).status is TrialStatus.WAITING
    assert not h.orders(Launch)
    assert h.ask("a") == 1


def test_nothing_is_given_where_nothing_waits(h: Harness) -> None:
    begin(h)

    assert h.ask("a") is None
    assert not h.changes


def test_as_many_are_held_as_run_in_parallel(h: Harness) -> None:
    begin(h, budget={"parallel": 1})
    h.suggest()
    h.add_trial()

    assert [h.ask("a"), h.ask("b")] == [1, None]
    h.tell("a", 0.5)
    assert h.ask("b") == 2


def test_a_trial_that_failed_twice_is_given_again_after_its_pause(h: Harness) -> None:
    begin(h, trial={"max_attempts": 5})
    h.suggest()
    for token in ("a", "b"):
        assert h.ask(token) == 1
        h.tell(token, error="bad luck")

    assert h.ask("c") is None
    h.after(1.0)
    assert h.ask("c") == 1


def test_who_asks_again_is_given_nothing_new(asked: Harness) -> None:
    asked.suggest()
    asked.after(50)

    assert asked.ask("a") == 1
    assert asked.statuses() == {1: "running", 2: "waiting"}
    asked.after(50)
    assert asked.attempt(1).nonce == "a"  # its lease began anew


def test_trials_that_are_launched_are_not_asked_for(h: Harness) -> None:
    h.run()

    with pytest.raises(ConflictError, match=r"launched by the service; those of one with trial\.lease"):
        h.ask("a")


def test_an_experiment_that_is_not_there_is_not_asked(h: Harness) -> None:
    with pytest.raises(NotFoundError):
        h.ask("a")


def test_a_paused_experiment_gives_nothing_until_it_is_resumed(asked: Harness) -> None:
    asked.suggest()
    asked.pause()

    assert asked.ask("b") is None
    asked.resume()
    assert asked.ask("b") == 2


def test_of_an_ended_experiment_nothing_can_be_asked(h: Harness) -> None:
    begin(h, budget={"trials": 1})
    h.suggest()
    h.ask("a")
    h.tell("a", 0.5)

    assert h.experiment.status is ExperimentStatus.COMPLETED
    with pytest.raises(ConflictError, match="is completed, so there is nothing to ask for") as refused:
        h.ask("b")
    assert refused.value.allowed == ("resume",)


# ── telling the end ─────────────────────────────────────────────────────────────────────────────
def test_a_told_value_ends_the_trial(asked: Harness) -> None:
    asked.at += 5
    asked.tell("a", 0.25)

    trial = asked.trial(1)
    assert (trial.status, trial.reason, trial.value) == (TrialStatus.SUCCEEDED, TrialReason.FINAL_METRIC, 0.25)
    assert (trial.final, trial.running_s) == ({"loss": 0.25}, 5.0)
    assert asked.told() == [1]
    assert (asked.experiment.best_number, asked.experiment.best_value) == (1, 0.25)
    (metric,) = asked.store.queries.metrics(asked.experiment.id, 1)
    assert (metric.attempt, metric.step, metric.values) == (1, None, {"loss": 0.25})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_is_an_outcome_too(asked: Harness, value: float) -> None:
    asked.tell("a", value)

    assert asked.trial(1).status is TrialStatus.SUCCEEDED
    assert repr(asked.trial(1).value) == repr(value)


def test_a_token_is_spent_by_the_end(asked: Harness) -> None:
    asked.tell("a", 0.25)

    with pytest.raises(NotHeldError, match="the token 'a' holds no trial"):
        asked.tell("a", 0.25)
    assert asked.told() == [1]


@pytest.mark.parametrize("token", ["", "b", "life1-1"])
def test_a_token_that_was_never_given_is_refused(asked: Harness, token: str) -> None:
    before = copy.deepcopy(asked.dispatcher.state)

    with pytest.raises(NotHeldError):
        asked.tell(token, 0.1)
    assert asked.dispatcher.state == before


def test_the_nonce_of_a_launch_is_no_token(h: Harness) -> None:
    h.run()

    with pytest.raises(NotHeldError):
        h.tell(h.attempt(1).nonce, 0.1)


def test_an_end_without_the_objective_is_refused_and_nothing_is_lost(asked: Harness) -> None:
    with pytest.raises(InputError, match="/values/loss: is missing"):
        asked.tell("a", values={"accuracy": 0.9})
    asked.tell("a", 0.3)

    assert asked.trial(1).value == 0.3


def test_every_objective_that_is_missing_is_named(h: Harness) -> None:
    begin(h, objective=Objective(metric="loss", further=(Objective(metric="size"), Objective(metric="time"))))
    h.suggest()
    h.ask("a")

    with pytest.raises(InputError) as refused:
        h.tell("a", values={"size": 3.0})
    assert [fault.pointer for fault in refused.value.faults] == ["/values/loss", "/values/time"]
    h.tell("a", values={"size": 3.0, "loss": 1.0, "time": 2.0})
    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_the_end_takes_the_last_report_where_the_experiment_says_so(h: Harness) -> None:
    begin(h, trial={"final": FinalFrom.LAST})
    h.suggest()
    h.ask("a")

    with pytest.raises(InputError):
        h.tell("a")
    h.tell("a", 0.4, step=0)
    h.tell("a", 0.3, step=1)
    h.tell("a")
    assert (h.trial(1).status, h.trial(1).value) == (TrialStatus.SUCCEEDED, 0.3)


def test_a_told_error_fails_the_trial(asked: Harness) -> None:
    asked.tell("a", error="Traceback …\nValueError: no convergence\n")

    trial = asked.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.FAILED, TrialReason.TOLD_FAILED)
    assert trial.message == "its evaluator told that it failed: ValueError: no convergence"
    assert trial.failed_itself
    assert asked.experiment.failures == 1


def test_an_error_without_a_word_fails_it_as_well(asked: Harness) -> None:
    asked.tell("a", error="")

    assert asked.trial(1).message == "its evaluator told that it failed"


def test_a_failed_attempt_is_followed_by_another_where_the_experiment_allows_that(h: Harness) -> None:
    begin(h, trial={"max_attempts": 2})
    h.suggest()
    h.ask("a")
    h.tell("a", error="out of luck")

    assert h.trial(1).status is TrialStatus.WAITING
    assert h.ask("b") == 1
    h.tell("b", error="out of luck")
    assert (h.trial(1).status, h.trial(1).attempts) == (TrialStatus.FAILED, 2)


def test_trials_that_fail_alike_pause_the_experiment(h: Harness) -> None:
    begin(h)
    for token in ("a", "b"):
        h.suggest()
        h.ask(token)
    h.tell("a", error="ImportError: no module")
    h.tell("b", error="ImportError: no module")

    assert h.experiment.reason is ExperimentReason.IDENTICAL_FAILURES


# ── reports ─────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def judged(h: Harness) -> Harness:
    begin(h, assessor=ASSESSED)
    h.suggest()
    h.ask("a")
    return h


def test_a_report_goes_before_the_assessor(judged: Harness) -> None:
    judged.tell("a", 0.9, step=3)

    (item,) = judged.pending(Queue.ASSESSOR)
    assert isinstance(item, MetricsReported)
    assert [(report.step, report.value) for report in item.reports] == [(3, 0.9)]
    assert (judged.trial(1).last_step, judged.trial(1).last_value) == (3, 0.9)
    assert judged.attempt(1).acknowledged == 4


def test_a_step_told_twice_counts_once(judged: Harness) -> None:
    judged.tell("a", 0.9, step=3)
    judged.tell("a", 0.1, step=3)

    assert len(judged.pending(Queue.ASSESSOR)) == 1
    assert len(judged.store.queries.metrics(judged.experiment.id, 1)) == 1


def test_steps_of_an_attempt_go_up(judged: Harness) -> None:
    judged.tell("a", 0.9, step=3)

    with pytest.raises(InputError, match="/step: should not go down: step 3 was told before"):
        judged.tell("a", 0.9, step=2)


@pytest.mark.parametrize("step", [-1, STEP_MAX])
def test_a_step_is_within_its_bounds(judged: Harness, step: int) -> None:
    with pytest.raises(InputError, match="/step: should be a whole number from 0"):
        judged.tell("a", 0.9, step=step)


def test_a_report_holds_a_metric(judged: Harness) -> None:
    with pytest.raises(InputError, match="/values: has no metric"):
        judged.tell("a", step=0)


def test_the_assessors_stop_ends_the_trial_at_once(judged: Harness) -> None:
    judged.tell("a", 0.9, step=0)
    judged.advise_stop(1)

    trial = judged.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.EARLY_STOPPED, TrialReason.STOPPED_BY_ASSESSOR)
    assert (trial.value, judged.told()) == (0.9, [1])
    assert not judged.orders(Stop)
    attempt = judged.store.queries.attempts(judged.experiment.id, 1)[0]
    assert attempt.exit is not None
    assert (attempt.exit.cause, attempt.exit.stop_reason) == ("stopped", "stopped_by_assessor")
    with pytest.raises(NotHeldError):
        judged.tell("a", 0.1)


def test_an_assessor_that_is_far_behind_is_waited_for(judged: Harness) -> None:
    judged.xs.queues[Queue.ASSESSOR].reports = ASSESSOR_REPORTS_LIMIT
    before = copy.deepcopy(judged.dispatcher.state)

    with pytest.raises(UnavailableError, match="wait for its assessor"):
        judged.tell("a", 0.9, step=0)
    assert judged.dispatcher.state == before
    judged.xs.queues[Queue.ASSESSOR].reports = 0


# ── the lease ───────────────────────────────────────────────────────────────────────────────────
def test_a_trial_of_which_nothing_is_told_is_given_to_another(asked: Harness) -> None:
    asked.after(LEASE_S)
    assert asked.trial(1).status is TrialStatus.RUNNING
    asked.after(1)

    trial = asked.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.WAITING, TrialReason.LEASE_EXPIRED)
    assert trial.message == "its evaluator told nothing for 60 s; given back"
    with pytest.raises(NotHeldError):
        asked.tell("a", 0.1)
    assert asked.ask("b") == 1
    asked.tell("b", 0.2)
    assert (asked.trial(1).value, asked.trial(1).attempts, asked.trial(1).charged) == (0.2, 2, 0)


@pytest.mark.parametrize("told", [{"loss": 0.5, "step": 1}, {"ends": False}])
def test_whatever_is_told_renews_the_lease(asked: Harness, told: dict[str, Any]) -> None:
    asked.after(50)
    asked.tell("a", **told)
    asked.after(50)
    if "step" in told:
        asked.tell("a", **told)  # also what was told before
        asked.after(50)

    assert asked.attempt(1).nonce == "a"


def test_a_trial_that_is_given_back_again_and_again_fails(h: Harness) -> None:
    asked = begin(h, budget={"trials": 1})
    asked.suggest()
    for life in range(DEATHS_WITHOUT_PROGRESS_LIMIT):
        assert asked.ask(f"evaluator-{life}") == 1
        asked.after(2 * LEASE_S)
        asked.after(2 * LEASE_S)  # the pause before its next attempt

    trial = asked.trial(1)
    assert (trial.status, trial.reason) == (TrialStatus.FAILED, TrialReason.CRASH_LOOP)
    assert not trial.failed_itself


def test_algorithms_see_a_step_once_whoever_told_it_first(judged: Harness) -> None:
    judged.tell("a", 0.9, step=0)
    judged.after(2 * LEASE_S)
    judged.ask("b")
    judged.tell("b", 0.7, step=0)
    judged.tell("b", 0.6, step=1)

    items = [item for item in judged.pending(Queue.ASSESSOR) if isinstance(item, MetricsReported)]
    assert [report.value for item in items for report in item.reports] == [0.9, 0.6]
    metrics = judged.store.queries.metrics(judged.experiment.id, 1)
    assert [(m.attempt, m.step, m.first) for m in metrics] == [(1, 0, True), (2, 0, False), (2, 1, True)]


def test_the_time_that_the_service_is_down_is_not_held_against_anyone(asked: Harness) -> None:
    asked.at += 10 * LEASE_S
    asked.restart()
    asked.after(50)

    assert asked.attempt(1).nonce == "a"
    asked.tell("a", 0.5)
    assert asked.trial(1).value == 0.5


def test_a_copy_of_the_database_gives_the_trials_anew(asked: Harness) -> None:
    asked.restart(lineage="copy")

    assert asked.trial(1).status is TrialStatus.WAITING
    with pytest.raises(NotHeldError):
        asked.tell("a", 0.5)


def test_agents_that_come_and_go_change_nothing(asked: Harness) -> None:
    asked.connect()
    asked.connect(agent_id=EVALUATOR)
    asked.disconnect()
    asked.after(50)

    assert asked.attempt(1).nonce == "a"


# ── people ──────────────────────────────────────────────────────────────────────────────────────
def test_a_stopped_experiment_takes_back_what_is_held(asked: Harness) -> None:
    asked.stop()

    assert asked.experiment.status is ExperimentStatus.STOPPED
    assert asked.trial(1).status is TrialStatus.PAUSED
    with pytest.raises(NotHeldError):
        asked.tell("a", 0.5)
    asked.resume()
    asked.ready()
    assert asked.ask("b") == 1


def test_a_duration_that_is_over_takes_back_what_is_held(h: Harness) -> None:
    begin(h, budget={"duration_s": 30.0})
    h.suggest()
    h.ask("a")
    h.after(31)

    assert (h.experiment.status, h.trial(1).status) == (ExperimentStatus.COMPLETED, TrialStatus.PAUSED)


def test_a_trial_that_a_person_gives_up_is_taken_back(asked: Harness) -> None:
    asked.stop_trial(1)

    assert (asked.trial(1).status, asked.told()) == (TrialStatus.CANCELED, [1])
    with pytest.raises(NotHeldError):
        asked.tell("a", 0.5)


def test_a_paused_experiment_takes_what_is_told(asked: Harness) -> None:
    asked.pause()
    asked.tell("a", 0.5)

    assert asked.trial(1).status is TrialStatus.SUCCEEDED


def test_an_added_trial_is_asked_for_like_any_other(asked: Harness) -> None:
    asked.add_trial(0.07)

    number = asked.ask("b")
    assert number is not None
    assert (asked.trial(number).parameters, asked.trial(number).source) == ({"lr": 0.07}, "custom")


# ── deterministic ───────────────────────────────────────────────────────────────────────────────
def test_a_deterministic_end_waits_for_the_judgement_and_its_turn(h: Harness) -> None:
    begin(h, deterministic=True, assessor=ASSESSED)
    for token in ("a", "b"):
        h.take(Queue.ASSESSOR)
        h.suggest()
        h.ask(token)
    h.take(Queue.ASSESSOR)
    h.tell("b", 0.1)
    assert h.told() == []
    h.tell("a", 0.5, step=0)
    h.tell("a", 0.4)

    assert h.trial(1).status is TrialStatus.RUNNING
    h.advise_stop(1)
    assert (h.trial(1).status, h.trial(1).value, h.trial(1).final) == (TrialStatus.EARLY_STOPPED, 0.5, {})
    assert h.told() == [1]
    h.suggest()  # trial 3 is decided knowing the outcome of the first alone
    assert h.told() == [1, 2]


def test_the_failure_that_ends_a_deterministic_search_takes_back_what_is_held(h: Harness) -> None:
    begin(h, deterministic=True, budget={"trials": 4, "parallel": 2, "failures": 1})
    for token in ("a", "b"):
        h.suggest()
        h.ask(token)

    h.tell("a", error="no data")

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.FAILED, ExperimentReason.TOO_MANY_FAILURES)
    assert (h.trial(1).status, h.trial(2).status) == (TrialStatus.FAILED, TrialStatus.PAUSED)


def test_a_deterministic_search_goes_on_at_once_past_a_trial_that_is_given_up(h: Harness) -> None:
    begin(h, deterministic=True)
    for token in ("a", "b"):
        h.suggest()
        h.ask(token)

    h.stop_trial(1)

    assert (h.told(), h.asked_for()) == ([1], [3])
