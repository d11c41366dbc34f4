"""Further parameters for a trial that runs: asked for by its script, chosen by the tuner, kept, and sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import CRASHED, KILLED, STOPPED, Harness, a_final, an_intermediate
from trials.wire.messages import FurtherParameters, Launch, Stop
from trials.wire.records import MetricRecord, ParametersWantedRecord
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    NoMoreSuggestions,
    NoSuggestionYet,
    Queue,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
)
from tuner_service.dispatcher.limits import FURTHER_PARAMETERS_LIMIT, RETRY_PAUSE_LIMIT_S
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentStatus, FinalFrom
from tuner_service.domain.trial import TrialOutcome, TrialStatus

ALONE = {"trials": 1, "parallel": 1}  # one trial, and no other is asked for
ASSESSED = AlgorithmSpec(name="median_stop")


def last_outcome(h: Harness) -> TrialOutcome:
    ended = [item for item in h.pending(Queue.TUNER) if isinstance(item, TrialEnded)]
    return ended[-1].outcome


def test_a_script_gets_what_the_tuner_chooses(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    assert h.wanted() == [(1, 1)]
    assert h.journal("suggestion_requested") == [{"number": 1}, {"number": 1, "index": 1}]

    h.suggest(0.07)

    assert h.sent() == [(1, {"lr": 0.07})]
    assert h.trial(1).further_parameters == ({"lr": 0.07},)
    h.want(1, 2)
    h.suggest(0.08)
    assert h.sent() == [(2, {"lr": 0.08})]
    assert h.experiment.next_number == 2


def test_the_same_index_has_the_same_parameters_for_every_attempt(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.suggest(0.07)
    h.exit(1, KILLED)
    (launch,) = h.orders(Launch)
    assert launch.spec.further_parameters == ({"lr": 0.07},)

    h.started(1)
    h.want(1, 1)

    assert h.sent() == [(1, {"lr": 0.07})]
    assert h.wanted() == []


def test_asked_twice_it_is_requested_once(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.want(1, 1)
    assert h.wanted() == [(1, 1)]
    assert h.sent() == []


def test_a_script_that_asks_for_a_later_index_first_gets_the_ones_before_on_the_way(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 2)
    h.suggest(0.07)
    assert h.wanted() == [(1, 2)]
    h.suggest(0.08)
    assert h.sent() == [(2, {"lr": 0.08})]


def test_the_answer_is_repeated_to_an_attempt_that_may_not_have_heard_it(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.disconnect()
    h.suggest(0.07)
    h.connect(h.observed(1))
    assert h.sent() == [(1, {"lr": 0.07})]

    h.restart()
    h.connect(h.observed(1))
    assert h.sent() == [(1, {"lr": 0.07})]


def test_what_is_chosen_while_an_attempt_is_being_launched_is_sent_when_it_has_started(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.exit(1, KILLED)
    h.suggest(0.07)
    h.started(1)
    assert h.sent() == [(1, {"lr": 0.07})]


def test_an_exhausted_tuner_has_none_and_the_script_is_told(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.suggest_no_more()
    assert h.sent() == [(1, None)]

    h.exit(1, KILLED)
    h.started(1)
    h.want(1, 1)
    assert h.sent() == [(1, None)]
    assert h.wanted() == []


def test_a_request_survives_a_restart(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.restart()
    assert h.wanted() == [(1, 1)]


def test_a_rebuilt_worker_is_told_what_was_recorded_and_nothing_of_what_was_asked_in_vain(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 2, "parallel": 2})
    h.want(1, 1)
    h.suggest_nothing_yet()
    h.succeed(2)
    h.suggest(0.07)

    history = list(h.store.history(EXPERIMENT_ID, Queue.TUNER, after=0, upto=h.experiment.tuner_cursor))

    requests = [item for item in history if isinstance(item, SuggestionRequested)]
    assert [(r.number, r.index, r.recorded) for r in requests] == [
        (1, 0, {"lr": 0.01}),
        (2, 0, {"lr": 0.02}),
        (1, 1, {"lr": 0.07}),
    ]


# ── what is told ────────────────────────────────────────────────────────────────────────────────
def test_the_last_final_metric_counts_with_the_parameters_it_was_reported_with(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.report(1, a_final(0.9))
    h.want(1, 1)
    h.suggest(0.07)
    h.report(1, a_final(0.3))
    h.exit(1)

    outcome = last_outcome(h)
    assert (outcome.value, outcome.parameters) == (0.3, {"lr": 0.07})
    assert h.trial(1).parameters == {"lr": 0.01}


def test_a_value_stays_with_its_parameters_where_nothing_was_reported_with_later_ones(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.report(1, an_intermediate(0, 0.8), a_final(0.9), ParametersWantedRecord(index=1, at=0.0))
    h.suggest(0.07)
    h.exit(1)
    assert last_outcome(h).parameters == {"lr": 0.01}


def test_a_failure_is_that_of_the_newest_parameters(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.suggest(0.07)
    h.exit(1, CRASHED)
    assert last_outcome(h).parameters == {"lr": 0.07}


def test_an_end_is_told_once_what_is_being_chosen_for_the_trial_is_known(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.exit(1, CRASHED)
    assert h.told() == []
    assert h.trial(1).status is TrialStatus.FAILED

    h.restart()
    h.ready()
    h.suggest(0.07)

    assert h.told() == [1]
    assert h.sent() == []
    assert last_outcome(h).parameters == {"lr": 0.07}
    assert h.trial(1).further_parameters == ({"lr": 0.07},)


def test_a_trial_that_ended_while_the_tuner_found_nothing_for_it_is_told(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.exit(1, CRASHED)
    h.suggest_no_more()
    assert h.told() == [1]


def test_an_experiment_that_stops_waits_for_such_an_answer(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.stop()
    h.exit(1)
    assert h.experiment.status is ExperimentStatus.STOPPING
    h.suggest(0.07)
    assert h.experiment.status is ExperimentStatus.STOPPED
    assert h.told() == [1]


# ── when it is asked ────────────────────────────────────────────────────────────────────────────
def test_in_a_paused_experiment_the_trials_that_run_are_served(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.pause()
    h.want(1, 1)
    h.suggest(0.07)
    assert h.sent() == [(1, {"lr": 0.07})]


def test_where_the_tuner_raised_it_is_asked_after_the_resume(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.fault(AlgorithmFault.RAISED)
    h.resume()
    h.ready()
    h.suggest(0.07)
    assert h.sent() == [(1, {"lr": 0.07})]


def test_nothing_is_asked_for_a_trial_that_is_being_stopped(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.stop_trial(1)
    h.want(1, 1)
    assert h.wanted() == []


def test_nothing_is_asked_for_while_the_experiment_stops(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.stop()
    h.want(1, 1)
    assert h.wanted() == []


def test_a_trial_that_waits_for_parameters_does_not_miss_its_heartbeat(h: Harness) -> None:
    h.run(trials=1, budget=ALONE, trial={"heartbeat_s": 10.0}, algorithm_timeout_s=1_000.0)
    h.want(1, 1)
    h.after(60)
    assert h.orders(Stop) == []
    h.suggest(0.07)
    h.after(9)
    assert h.orders(Stop) == []
    h.after(9)
    assert len(h.orders(Stop)) == 1


def test_a_tuner_that_waits_is_asked_again_after_the_next_outcome(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 2, "parallel": 2})
    h.want(1, 1)
    h.suggest_nothing_yet()
    assert (h.wanted(), h.sent()) == ([], [])
    h.succeed(2)
    assert h.wanted() == [(1, 1)]


def test_where_every_trial_waits_for_a_tuner_that_waits_the_first_goes_on_without(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 2, "parallel": 2})
    h.want(1, 1)
    h.want(2, 1)
    first, second = h.xs.requests
    h.answer(Queue.TUNER, NoSuggestionYet(line=first.line))
    assert h.sent() == []
    h.answer(Queue.TUNER, NoSuggestionYet(line=second.line))
    assert [(order.key.number, order.parameters) for order in h.orders(FurtherParameters)] == [(1, None)]

    h.succeed(1)
    assert h.wanted() == [(2, 1)]


def test_there_is_a_bound_on_parameters_of_one_trial(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.want(1, 1)
    h.suggest(0.07)
    few = ({"lr": 0.1},) * (FURTHER_PARAMETERS_LIMIT - 1)
    h.xs.trials[1] = replace(h.xs.trials[1], further_parameters=few, further_lines=tuple(range(len(few))))
    h.want(1, FURTHER_PARAMETERS_LIMIT)
    assert h.wanted() == [(1, FURTHER_PARAMETERS_LIMIT)]
    h.suggest(0.07)
    assert h.sent() == [(FURTHER_PARAMETERS_LIMIT, {"lr": 0.07})]
    many = ({"lr": 0.1},) * FURTHER_PARAMETERS_LIMIT
    h.xs.trials[1] = replace(h.xs.trials[1], further_parameters=many, further_lines=tuple(range(len(many))))
    h.want(1, FURTHER_PARAMETERS_LIMIT + 1)
    assert h.sent() == [(FURTHER_PARAMETERS_LIMIT + 1, None)]
    assert h.wanted() == []


# ── deterministic ───────────────────────────────────────────────────────────────────────────────
def test_deterministic_a_trial_is_served_when_it_is_the_next_to_be_told(h: Harness) -> None:
    h.run(trials=2, deterministic=True, budget={"trials": 2, "parallel": 2})
    h.want(2, 1)
    assert h.wanted() == []
    h.want(1, 1)
    assert h.wanted() == [(1, 1)]
    h.suggest(0.07)
    h.succeed(1)

    assert h.told() == [1]
    assert h.wanted() == [(2, 1)]


def test_deterministic_it_is_served_once_its_reports_are_judged(h: Harness) -> None:
    h.run(trials=1, deterministic=True, assessor=ASSESSED, budget=ALONE)
    h.report(1, an_intermediate(0, 0.5), ParametersWantedRecord(index=1, at=0.0))
    assert h.wanted() == []
    h.take(Queue.ASSESSOR)
    assert h.wanted() == [(1, 1)]
    h.take(Queue.ASSESSOR)
    h.suggest(0.07)
    assert h.sent() == [(1, {"lr": 0.07})]


def test_deterministic_a_trial_whose_report_was_its_last_is_not_served(h: Harness) -> None:
    h.run(trials=1, deterministic=True, assessor=ASSESSED, budget=ALONE)
    h.report(1, an_intermediate(0, 0.5), ParametersWantedRecord(index=1, at=0.0))
    h.advise_stop(1)
    assert h.wanted() == []


@pytest.mark.parametrize("answer", [NoSuggestionYet, NoMoreSuggestions])
def test_deterministic_a_tuner_that_would_wait_for_this_very_trial_has_none(
    h: Harness, answer: type[NoSuggestionYet]
) -> None:
    h.run(trials=1, deterministic=True, budget={"trials": 2, "parallel": 1})
    h.want(1, 1)
    (request,) = h.xs.requests
    h.answer(Queue.TUNER, answer(line=request.line))
    assert h.sent() == [(1, None)]


def test_deterministic_an_outcome_waits_for_what_is_being_chosen_for_its_trial(h: Harness) -> None:
    h.run(trials=1, deterministic=True, budget=ALONE)
    h.want(1, 1)
    h.exit(1, CRASHED)
    assert h.told() == []
    h.suggest(0.07)
    assert h.told() == [1]
    assert h.asked_for() == [2]


def test_deterministic_a_trial_that_waits_for_its_turn_makes_room_for_the_one_whose_turn_it_is(h: Harness) -> None:
    h.begin(deterministic=True, budget={"trials": 3, "parallel": 3}, trial={"cpus": 4.0})  # of eight: two at a time
    for number in (1, 2, 3):
        h.suggest(lr=number / 100)
    h.started(1)
    h.started(2)
    h.want(2, 1)
    h.exit(1, KILLED)
    assert h.trial(1).status is TrialStatus.RUNNING, "its place was free"
    h.started(1)
    h.connect(h.observed(1), h.observed(2), cpus=4)  # half of the node is gone
    h.exit(1, KILLED)
    assert h.orders(Stop) == [], "it pauses before its next attempt, and needs no room yet"
    h.after(RETRY_PAUSE_LIMIT_S)
    assert h.trial(1).status is TrialStatus.WAITING

    (stop,) = h.orders(Stop)
    assert (stop.key.number, stop.reason) == (2, "preempted")
    assert h.trial(2).message == "makes room for trial 1, whose end comes before its next parameters"
    h.exit(2, STOPPED)
    assert h.trial(2).status is TrialStatus.WAITING
    assert h.trial(2).deaths_without_progress == 0
    h.started(1)
    h.succeed(1)
    h.started(2)
    assert h.wanted() == [(2, 1)]


def test_deterministic_nothing_makes_room_while_no_node_is_there_or_something_else_may_end(h: Harness) -> None:
    h.begin(deterministic=True, budget={"trials": 2, "parallel": 2}, trial={"cpus": 8.0})
    h.suggest(0.01)
    h.started(1)
    h.suggest(0.02)
    assert h.trial(2).status is TrialStatus.WAITING
    h.want(1, 1)
    assert h.orders(Stop) == []
    assert h.wanted() == [(1, 1)]


def test_an_answer_for_the_assessor_changes_nothing(h: Harness) -> None:
    h.run(trials=1, deterministic=True, assessor=ASSESSED, budget=ALONE)
    h.want(1, 1)
    h.answer(Queue.ASSESSOR, *(Taken(line=item.line) for item in h.pending(Queue.ASSESSOR)))
    assert h.wanted() == [(1, 1)]
    assert h.trial(1).further_parameters == ()
    (request,) = h.xs.requests
    h.answer(Queue.TUNER, Suggested(line=request.line, parameters={"lr": 0.5}))
    assert h.trial(1).further_parameters == ({"lr": 0.5},)


# ── which parameters a value belongs to ─────────────────────────────────────────────────────────
def second_phase(h: Harness, *first: MetricRecord, **overrides: Any) -> None:
    h.run(trials=1, budget=ALONE, **overrides)
    h.report(1, *first)
    h.want(1, 1)
    h.suggest(0.07)


def test_what_is_reported_on_the_way_in_a_later_phase_does_not_move_the_final_metric(h: Harness) -> None:
    second_phase(h, an_intermediate(1, 0.5), a_final(0.25))
    h.report(1, an_intermediate(2, 0.9))
    h.exit(1)

    assert (h.trial(1).value, h.trial(1).result_parameters) == (0.25, {"lr": 0.01})
    assert last_outcome(h).parameters == {"lr": 0.01}


@pytest.mark.parametrize(
    ("source", "value", "lr"),
    [(FinalFrom.BEST, 0.2, 0.01), (FinalFrom.LAST, 0.9, 0.07), (FinalFrom.REPORTED, 0.6, 0.07)],
)
def test_the_value_stands_beside_what_it_was_reported_with(
    h: Harness, source: FinalFrom, value: float, lr: float
) -> None:
    second_phase(h, an_intermediate(1, 0.2), a_final(0.3), trial={"final": source})
    h.report(1, an_intermediate(2, 0.9), a_final(0.6))
    h.restart()
    h.exit(1)

    assert (h.trial(1).value, h.trial(1).result_parameters) == (value, {"lr": lr})
    assert last_outcome(h).parameters == {"lr": lr}


def test_an_early_stopped_trial_has_the_parameters_of_its_last_report(h: Harness) -> None:
    second_phase(h, an_intermediate(1, 0.2), assessor=ASSESSED)
    h.report(1, an_intermediate(2, 0.9))
    h.advise_stop(1)
    h.exit(1)

    assert (h.trial(1).value, h.trial(1).result_parameters) == (0.9, {"lr": 0.07})


def test_a_running_trial_is_shown_with_the_newest_that_it_was_given(h: Harness) -> None:
    second_phase(h, an_intermediate(1, 0.2))
    assert h.trial(1).result_parameters == {"lr": 0.07}
