"""Every invariant has a sentence for the state that breaks it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_spec, a_trial, an_attempt, an_experiment
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentStatus
from tuner_service.domain.resources import Holding
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.trial import EVALUATOR, AttemptStatus, PendingEnd, TrialReason, TrialStatus

END = PendingEnd(status=TrialStatus.SUCCEEDED, reason=TrialReason.FINAL_METRIC, message="")
ASKED = SuggestionRequested(line=3, number=2)


def a_state(**overrides: Any) -> DispatcherState:
    """One running trial with its attempt, and a suggestion that is asked for."""
    experiment = an_experiment(
        **({"next_line": 4, "next_number": 3, "counts": {"running": 1}, "tuner_cursor": 2} | overrides)
    )
    xs = ExperimentState(experiment=experiment, trials={1: a_trial()}, attempts={1: an_attempt()})
    xs.queues[Queue.TUNER].pending = deque([ASKED])
    return DispatcherState(lineage="memory", incarnation="life", experiments={EXPERIMENT_ID: xs})


def only(state: DispatcherState) -> ExperimentState:
    return state.experiments[EXPERIMENT_ID]


def test_a_sound_state_breaks_none() -> None:
    assert violations(a_state()) == []


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"next_number": 4},
            "counts {'running': 1}, and the numbers [2] asked for or free, do not add up to the 3 numbers given out",
        ),
        ({"free_numbers": (2,), "next_number": 4}, "the free numbers (2,) are in use, doubled or out of order"),
        ({"free_numbers": (1,), "next_number": 4}, "the free numbers (1,) are in use, doubled or out of order"),
        ({"counts": {"paused": 1}}, "1 trials are counted as paused"),
        ({"spared": 3}, "3 trials are spared, of 2 numbers"),
        ({"status": ExperimentStatus.COMPLETED}, "completed, and attempts are alive"),
        ({"tuner_cursor": 3}, "the tuner queue is out of order: [3, 3]"),
        ({"next_line": 3}, "the tuner queue holds line 3, which is not written"),
    ],
)
def test_rows_that_contradict_each_other_are_named(overrides: dict[str, Any], sentence: str) -> None:
    assert f"experiment {EXPERIMENT_ID}: {sentence}" in violations(a_state(**overrides))


@pytest.mark.parametrize(
    ("trial", "sentence"),
    [
        ({"status": TrialStatus.WAITING}, f"attempt {EXPERIMENT_ID}/1/1 is alive and its trial is not"),
        ({"told_line": 2}, "trial 1 was told and is still held"),
        ({"status": TrialStatus.FAILED}, "trial 1 has ended and was not told"),
        ({"status": TrialStatus.FAILED, "pending_end": END}, "trial 1 has ended and its end is still pending"),
    ],
)
def test_trials_that_contradict_themselves_are_named(trial: dict[str, Any], sentence: str) -> None:
    state = a_state()
    only(state).trials[1] = a_trial(**trial)

    assert f"experiment {EXPERIMENT_ID}: {sentence}" in violations(state)


def test_what_is_noted_of_trials_follows_from_them() -> None:
    state = a_state()
    only(state).waiting.add(1)
    only(state).wanting.add(1)

    assert violations(state) == [
        f"experiment {EXPERIMENT_ID}: the trials [1] are noted as waiting",
        f"experiment {EXPERIMENT_ID}: the trials [1] are noted as waiting for parameters",
    ]


def test_a_running_trial_needs_an_attempt_unless_its_end_is_pending() -> None:
    state = a_state()
    only(state).attempts.clear()
    assert f"experiment {EXPERIMENT_ID}: trial 1 is running without an attempt" in violations(state)

    only(state).trials[1] = a_trial(pending_end=END)
    assert violations(state) == []


def test_an_attempt_without_a_trial_is_named() -> None:
    state = a_state(counts={}, next_number=2)
    only(state).trials.clear()

    assert violations(state) == [
        f"experiment {EXPERIMENT_ID}: attempt {EXPERIMENT_ID}/1/1 is alive and its trial is not"
    ]


def test_a_trial_whose_time_runs_without_an_attempt_is_named() -> None:
    state = a_state()
    only(state).attempts.clear()
    only(state).trials[1] = a_trial(pending_end=END, running_since=5.0)

    assert violations(state) == [
        f"experiment {EXPERIMENT_ID}: trial 1 has no attempt, and its running time is counted on"
    ]


def test_an_ended_attempt_that_is_held_is_named() -> None:
    state = a_state()
    only(state).attempts[1] = an_attempt(status=AttemptStatus.LOST)

    assert violations(state) == [f"experiment {EXPERIMENT_ID}: attempt {EXPERIMENT_ID}/1/1 is lost and held as alive"]


def test_a_nonce_names_one_attempt_in_the_whole_world() -> None:
    state = a_state()
    other = a_state()
    xs = only(other)
    xs.experiment = replace(xs.experiment, id="other")
    state.experiments["other"] = xs

    assert any(sentence.startswith("nonce nonce-") for sentence in violations(state))


def test_one_suggestion_is_asked_for_at_a_time() -> None:
    state = a_state(next_line=5, next_number=4)
    only(state).queues[Queue.TUNER].pending.append(SuggestionRequested(line=4, number=3))

    assert violations(state) == [f"experiment {EXPERIMENT_ID}: 2 suggestions are asked for at a time"]


def test_as_many_suggestions_are_asked_for_as_there_are_workers() -> None:
    state = a_state(next_line=5, next_number=4, spec=a_spec(workers=2))
    only(state).queues[Queue.TUNER].pending.append(SuggestionRequested(line=4, number=3))

    assert violations(state) == []


def test_the_same_parameters_are_asked_for_once() -> None:
    state = a_state(next_line=6)
    further = [SuggestionRequested(line=line, number=1, index=1) for line in (4, 5)]
    only(state).queues[Queue.TUNER].pending.extend(further)

    asked = [(2, 0), (1, 1), (1, 1)]
    assert violations(state) == [f"experiment {EXPERIMENT_ID}: the same parameters are asked for twice: {asked}"]


def test_a_trial_is_held_while_further_parameters_of_it_are_asked_for() -> None:
    state = a_state(next_line=5, counts={"failed": 1})
    only(state).attempts.clear()
    only(state).trials[1] = a_trial(status=TrialStatus.FAILED)
    only(state).queues[Queue.TUNER].pending.append(SuggestionRequested(line=4, number=1, index=1))
    assert violations(state) == []

    only(state).trials.clear()
    asked = [(2, 0), (1, 1)]
    gone = f"experiment {EXPERIMENT_ID}: further parameters are asked for, of trials that are gone: {asked}"
    assert violations(state) == [gone]


def test_in_a_deterministic_experiment_an_end_may_wait_for_its_turn() -> None:
    state = a_state(spec=a_spec(deterministic=True), counts={"failed": 1})
    only(state).trials[1] = a_trial(status=TrialStatus.FAILED)
    only(state).attempts.clear()

    assert violations(state) == []


# ── advisors ────────────────────────────────────────────────────────────────────────────────────
ADVISED = a_spec(advisor=AlgorithmSpec(name="pbt"))
REACHED = Rungs(rung_step=1, rung_reached=True)
AT_REST = {"status": TrialStatus.PAUSED, "reason": TrialReason.RUNG_REACHED, "rungs": REACHED.told(1)}


@pytest.mark.parametrize(
    ("trial", "status", "sentence"),
    [
        ({"status": TrialStatus.WAITING}, ExperimentStatus.RUNNING, "trial 1 is waiting, and its advisor"),
        ({"rungs": REACHED}, ExperimentStatus.RUNNING, "trial 1 rests, and its advisor was not told"),
        ({"rungs": Rungs()}, ExperimentStatus.RUNNING, "trial 1 rests without having reached its rung"),
        ({}, ExperimentStatus.COMPLETED, "completed, and trial 1 rests"),
    ],
)
def test_trials_that_rest_and_do_not_are_named(trial: dict[str, Any], status: ExperimentStatus, sentence: str) -> None:
    state = a_state(spec=ADVISED, status=status, counts={"paused": 1})
    only(state).trials[1] = a_trial(**(AT_REST | trial))
    only(state).attempts.clear()
    assert any(sentence in violation for violation in violations(state))


def test_the_reports_of_a_queue_and_the_queue_of_an_advisor_are_counted() -> None:
    state = a_state(spec=ADVISED)
    only(state).queues[Queue.TUNER].reports = 7
    only(state).queues[Queue.ASSESSOR].pending.append(ASKED)
    named = violations(state)
    assert f"experiment {EXPERIMENT_ID}: the tuner queue counts 7 reports, which is wrong" in named
    assert f"experiment {EXPERIMENT_ID}: an advisor has one queue, and the assessor's is used" in named


# ── holdings ────────────────────────────────────────────────────────────────────────────────────
def holding_all_of(agent_id: str, *, booked_times: int) -> DispatcherState:
    state = a_state()
    xs = only(state)
    xs.attempts = {1: an_attempt(holdings=(Holding(agent_id=agent_id, shares={"g0": 1.0}),))}
    for _ in range(booked_times):
        state.ledger.add(xs.held(xs.attempts[1]))
    return state


def test_what_is_held_is_booked_once() -> None:
    assert violations(holding_all_of("agent-1", booked_times=1)) == []
    (sentence,) = violations(holding_all_of("agent-1", booked_times=0))
    assert "is not what the attempts hold" in sentence


def test_a_device_that_is_held_twice_is_named() -> None:
    assert "device g0 of agent-1 is held 2 times" in violations(holding_all_of("agent-1", booked_times=2))


def test_an_attempt_holds_nothing_on_another_node() -> None:
    (sentence,) = violations(holding_all_of("elsewhere", booked_times=1))

    assert sentence == "attempt 8f3k2/1/1 runs on agent-1 and holds something elsewhere"


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        ({"agent_id": "agent-1"}, f"attempt {EXPERIMENT_ID}/1/1 is held by 'agent-1'"),
        ({"status": AttemptStatus.STARTING}, f"attempt {EXPERIMENT_ID}/1/1 was asked for and is starting"),
        (
            {"holdings": (Holding(agent_id=EVALUATOR, cpus=1.0),)},
            f"attempt {EXPERIMENT_ID}/1/1 was asked for and holds something of a node",
        ),
    ],
)
def test_what_an_evaluator_holds_is_held_by_nobody_else(attempt: dict[str, Any], sentence: str) -> None:
    state = a_state(spec=a_spec(trial={"lease_s": 60.0}))
    only(state).attempts[1] = an_attempt(**({"agent_id": EVALUATOR} | attempt))

    assert f"experiment {EXPERIMENT_ID}: {sentence}" in violations(state)


def test_an_agent_holds_what_was_launched() -> None:
    state = a_state()
    only(state).attempts[1] = an_attempt(agent_id=EVALUATOR)

    assert f"experiment {EXPERIMENT_ID}: attempt {EXPERIMENT_ID}/1/1 is held by 'an evaluator'" in violations(state)


def test_what_is_to_stop_is_taken_back_from_its_evaluator() -> None:
    state = a_state(spec=a_spec(trial={"lease_s": 60.0}), counts={"stopping": 1})
    only(state).trials[1] = a_trial(status=TrialStatus.STOPPING)

    sentence = "trial 1 was asked for, is to stop and was not taken back"
    assert f"experiment {EXPERIMENT_ID}: {sentence}" in violations(state)
