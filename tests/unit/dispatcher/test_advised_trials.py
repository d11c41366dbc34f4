"""Trials of an advisor: they rest where they were to run, go on, fork, and are given up."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.advised import Advised
from tests.unit.dispatcher.harness import (
    CRASHED,
    EXITED,
    KILLED,
    STOPPED,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.messages import Busy, DeleteCheckpoint, Launch, Stop
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import (
    Decided,
    NoMoreSuggestions,
    NoSuggestionYet,
    Queue,
    StopAdvised,
    Taken,
    TrialEnded,
    TrialRested,
)
from tuner_service.dispatcher.limits import ASSESSOR_REPORTS_LIMIT
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import Decision, DecisionKind


@pytest.fixture
def h() -> Advised:
    return Advised().begin()


# ── rest ────────────────────────────────────────────────────────────────────────────────────────
def test_a_trial_rests_where_it_was_to_run_and_leaves_its_place(h: Advised) -> None:
    h.decide(until_step=2)
    (launch,) = h.orders(Launch)
    assert launch.spec.until_step == 2
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    assert h.statuses() == {1: "running"}

    h.report(1, an_intermediate(2, 0.4), a_checkpoint_record(2))
    assert h.trial(1).reason.value == "rung_reached"
    assert [order.reason for order in h.orders(Stop)] == ["rung_reached"]

    h.exit(1, STOPPED)
    assert h.statuses() == {1: "paused"}
    assert h.told_to_rest() == [(1, 2)]
    assert isinstance(h.pending(Queue.TUNER)[-2], TrialRested)
    assert h.asked_for() == [2]


def test_everything_stands_in_the_advisors_one_queue(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    assert not h.pending(Queue.ASSESSOR)
    assert all(line.queues in {(), (Queue.TUNER,)} for line in h.store.queries.journal(h.experiment.id))


def test_a_promoted_trial_goes_on_in_a_new_attempt_from_its_checkpoint(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.promote(1, until_step=3)
    (launch,) = h.orders(Launch)
    assert (launch.key.attempt, [c.step for c in launch.spec.checkpoints], launch.spec.until_step) == (2, [1], 3)
    assert h.trial(1).status.value == "running"
    assert h.experiment.free_numbers == (2,)
    assert h.journal("trial_promoted") == [{"number": 1, "until_step": 3}]
    h.come_to_rest(1, 3)
    assert h.told_to_rest() == [(1, 1), (1, 3)]
    assert h.asked_for() == [2]


def test_a_trial_that_is_done_when_it_comes_to_its_rung_has_succeeded(h: Advised) -> None:
    h.decide(until_step=1)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5), a_final(0.5))
    h.exit(1, EXITED)
    assert h.statuses() == {1: "succeeded"}


def test_however_the_attempt_ends_after_its_rung_the_trial_rests(h: Advised) -> None:
    h.decide(until_step=1)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.exit(1, CRASHED)
    assert h.statuses() == {1: "paused"}


def test_a_trial_without_a_checkpoint_begins_anew_and_that_is_said_once(h: Advised) -> None:
    for number in (1, 2):
        h.decide(until_step=1)
        h.come_to_rest(number, 1, saved=False)
    h.promote(1, until_step=2)
    assert h.orders(e.WarnNoCheckpoint) == [e.WarnNoCheckpoint(experiment_id=h.experiment.id, number=1)]
    assert h.journal("trial_promoted")
    h.come_to_rest(1, 2, saved=False)
    h.promote(2, until_step=2)
    assert not h.orders(e.WarnNoCheckpoint)


def test_a_trial_that_was_to_make_room_rests_when_it_comes_to_its_rung(h: Advised) -> None:
    h.decide(until_step=1)
    h.started(1)
    h.stop()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    assert h.trial(1).reason.value == "rung_reached"
    h.exit(1, STOPPED)
    assert h.experiment.status.value == "stopped"
    h.resume()
    assert h.statuses() == {1: "paused"}, "it goes on when it is promoted, not when the experiment goes on"


def test_a_trial_that_a_person_gave_up_does_not_rest(h: Advised) -> None:
    h.decide(until_step=1)
    h.started(1)
    h.stop_trial(1)
    h.report(1, an_intermediate(1, 0.5))
    h.exit(1, STOPPED)
    assert h.statuses() == {1: "canceled"}


def test_what_rests_survives_a_restart(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.restart()
    h.ready()
    h.connect()
    h.promote(1, until_step=2)
    assert h.trial(1).status.value == "running"


# ── forks ───────────────────────────────────────────────────────────────────────────────────────
def test_a_fork_is_a_new_trial_that_begins_with_the_checkpoint_of_another(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.decide(DecisionKind.FORK, forked_from=1, parameters={"lr": 0.3}, until_step=2, dropped=(1,))
    fork = h.trial(2)
    assert (fork.rungs.forked_from, fork.rungs.forked_step, fork.parameters) == (1, 1, {"lr": 0.3})
    (launch,) = h.orders(Launch)
    assert [c.step for c in launch.spec.checkpoints] == [1]
    assert h.trial(1).status.value == "early_stopped"
    assert h.trial(1).reason.value == "not_promoted"
    assert h.journal("trial_forked") == [{"number": 2, "from": 1, "step": 1}]

    h.restart()
    assert [(c.step, c.attempt, c.sequence) for c in h.xs.checkpoints[2]] == [(1, 0, 1)]


def test_a_fork_of_a_trial_without_checkpoints_begins_anew(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1, saved=False)
    h.decide(DecisionKind.FORK, forked_from=1, until_step=2)
    assert h.trial(2).rungs.forked_step is None
    assert h.orders(e.WarnNoCheckpoint)


def test_the_checkpoint_a_fork_begins_with_is_kept_while_its_source_runs_on() -> None:
    h = Advised().begin(trial={"keep_last": 1, "keep_best": 0}, budget={"trials": 3, "parallel": 2})
    h.decide(until_step=1)
    h.tell(lambda item: NoSuggestionYet(line=item.line))
    h.come_to_rest(1, 1)
    h.promote(1)
    h.started(1)
    h.report(1, *[record for step in (2, 3) for record in (an_intermediate(step, 0.4), a_checkpoint_record(step))])
    assert [c.step for c in h.xs.checkpoints[1]] == [1, 3]
    h.decide(DecisionKind.FORK, forked_from=1, until_step=2)
    assert h.trial(2).rungs.forked_step == 1
    # A file that the fork may still want is not ordered away with the source's row.
    h.started(2)
    h.report(2, an_intermediate(2, 0.2), a_checkpoint_record(2))
    h.exit(2, EXITED)
    h.report(1, an_intermediate(4, 0.3), a_checkpoint_record(4))
    deleted = [order.name for order in h.orders(DeleteCheckpoint)]
    assert deleted == ["step-3"]


# ── decisions that come too late ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("kind", [DecisionKind.PROMOTE, DecisionKind.FORK])
def test_a_decision_about_a_trial_that_a_person_ended_is_not_carried_out(h: Advised, kind: DecisionKind) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.stop_trial(1)
    if kind is DecisionKind.PROMOTE:
        h.promote(1)
    else:
        h.decide(kind, forked_from=1)
    assert h.statuses() == {1: "canceled"}
    assert h.journal("worker_replaced")[0]["why"].endswith("which had ended")
    h.after(1.0)
    h.ready()
    h.decide()
    assert h.statuses() == {1: "canceled", 2: "running"}


def test_such_a_decision_is_refused_also_where_no_number_was_taken() -> None:
    h = Advised().begin(budget={"trials": 1, "parallel": 1})
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    assert [item.number for item in h.xs.openings] == [0]
    h.stop_trial(1)
    h.promote(1)
    h.after(1.0)
    h.ready()
    assert h.experiment.status.value == "running"
    assert h.asked_for() == [2], "a canceled trial uses none of the budget"


def test_what_was_said_after_such_a_decision_is_left_out(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.stop_trial(1)
    (request,) = h.xs.requests
    promotion = Decision(kind=DecisionKind.PROMOTE, number=1)
    ended = h.pending(Queue.TUNER)[-1]
    h.answer(Queue.TUNER, Decided(line=request.line, decision=promotion), Taken(line=ended.line))
    assert isinstance(h.pending(Queue.TUNER)[0], TrialEnded)


def test_a_dropped_trial_that_does_not_rest_any_more_is_left_alone(h: Advised) -> None:
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.decide(dropped=(1, 7))
    assert h.trial(1).status.value == "early_stopped"


# ── the end ─────────────────────────────────────────────────────────────────────────────────────
def test_when_nothing_is_promoted_any_more_what_rests_is_given_up() -> None:
    h = Advised().begin(budget={"trials": 1, "parallel": 1})
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    assert [item.number for item in h.xs.openings] == [0], "only a trial that rests could run"
    h.tell(lambda item: NoSuggestionYet(line=item.line))
    assert h.experiment.status.value == "completed"
    assert h.trial(1).reason.value == "not_promoted"
    assert h.told() == [1]


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_advisor_that_has_nothing_left_to_run_ends_the_experiment(deterministic: bool) -> None:
    h = Advised().begin(deterministic=deterministic)
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.tell(lambda item: NoMoreSuggestions(line=item.line))
    assert h.experiment.status.value == "completed"
    assert h.experiment.message == "the advisor has nothing left to run"
    assert h.experiment.reason.value == "advisor_done"
    assert h.told() == [1]
    with pytest.raises(ConflictError, match=r"advisor of experiment .* has run all that it planned.*warm_start"):
        h.resume(trials=100)


def test_beyond_the_budget_what_rests_may_still_be_promoted() -> None:
    h = Advised().begin(budget={"trials": 1, "parallel": 1})
    h.decide(until_step=1)
    h.come_to_rest(1, 1)
    h.promote(1)
    h.started(1)
    h.succeed(1)
    assert h.experiment.status.value == "completed"
    assert h.statuses() == {1: "succeeded"}


def test_an_advisor_that_waits_is_asked_again_when_a_trial_rests() -> None:
    h = Advised().begin(budget={"trials": 3, "parallel": 2})
    h.decide(until_step=1)
    h.tell(lambda item: NoSuggestionYet(line=item.line))
    assert not h.xs.requests
    h.come_to_rest(1, 1)
    assert h.asked_for() == [2]


def test_reports_alone_are_no_reason_to_ask_again() -> None:
    h = Advised().begin(budget={"trials": 3, "parallel": 2})
    h.decide(until_step=5)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    (request,) = h.xs.requests
    h.answer(Queue.TUNER, NoSuggestionYet(line=request.line))
    assert h.experiment.tuner_waits


# ── what else there is ──────────────────────────────────────────────────────────────────────────
def test_a_person_may_add_a_trial_which_runs_to_its_end(h: Advised) -> None:
    h.decide(until_step=1)
    h.add_trial()
    h.come_to_rest(1, 1)
    h.started(2)
    h.succeed(2)
    assert h.statuses() == {1: "paused", 2: "succeeded"}


def test_trials_of_an_advisor_have_one_set_of_parameters(h: Advised) -> None:
    h.decide(until_step=3)
    h.started(1)
    h.want(1, 1)
    assert h.sent() == [(1, None)]


def test_reports_wait_in_their_spools_when_the_advisor_has_too_many(h: Advised) -> None:
    h.decide()
    h.started(1)
    h.report(1, *[an_intermediate(step, 0.5) for step in range(ASSESSOR_REPORTS_LIMIT)])
    h.report(1, an_intermediate(ASSESSOR_REPORTS_LIMIT, 0.5))
    assert h.orders(Busy)
    h.restart()
    assert h.xs.queues[Queue.TUNER].reports == ASSESSOR_REPORTS_LIMIT


def test_results_of_earlier_experiments_stand_before_the_first_request() -> None:
    from tests.builders import EXPERIMENT_ID, a_spec
    from tuner_service.dispatcher import commands as c
    from tuner_service.dispatcher import importing
    from tuner_service.domain.trial import TrialOutcome, TrialStatus

    h = Advised()
    outcome = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.1}, value=0.1, source="imported")
    known = tuple(importing.lines_of((outcome,) * 3))
    h.handle(c.ExperimentCreated(at=h.at, experiment_id=EXPERIMENT_ID, spec=a_spec(), known=known))
    kinds = [type(item).__name__ for item in h.pending(Queue.TUNER)]
    assert kinds == ["ResultsImported", "SuggestionRequested"]


# ── advisors that judge ─────────────────────────────────────────────────────────────────────────
def test_an_advisor_may_let_a_running_trial_rest(h: Advised) -> None:
    h.decide()
    h.started(1)
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.pause_at()
    assert h.trial(1).reason.value == "rung_reached"
    assert [line["message"] for line in h.journal("pause_advised")] == ["enough"]
    h.exit(1, STOPPED)
    assert h.told_to_rest() == [(1, 1)]


def test_a_second_word_about_a_trial_that_rests_is_ignored(h: Advised) -> None:
    h.decide(until_step=2)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    h.report(1, an_intermediate(2, 0.5))
    h.pause_at()
    assert h.trial(1).rungs.rung_step == 2


def test_a_trial_between_two_attempts_rests_at_once(h: Advised) -> None:
    h.decide()
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    h.disconnect()
    h.exit(1, KILLED)
    assert h.statuses() == {1: "waiting"}
    h.pause_at()
    assert h.statuses() == {1: "paused"}
    assert h.told_to_rest() == [(1, 1)]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_trial_that_made_room_rests_when_the_advisor_says_so(deterministic: bool) -> None:
    h = Advised().begin(deterministic=deterministic, budget={"trials": 3, "parallel": 2})
    h.decide()
    h.decide()
    for number in (1, 2):
        h.started(number)
    h.report(1, an_intermediate(1, 0.5), an_intermediate(2, 0.5))
    h.stop()
    h.exit(1, STOPPED)
    assert h.trial(1).reason.value == "experiment_stopped"
    h.pause_at(0)
    if deterministic:
        assert h.trial(1).rungs.until_step == 1, "it goes there once more when the experiment goes on"
    else:
        assert h.told_to_rest() == [(1, 1)]


def test_a_stop_wins_over_a_rest(h: Advised) -> None:
    h.decide(until_step=1)
    h.started(1)
    h.report(1, an_intermediate(1, 0.5))
    h.judge(lambda item: StopAdvised(line=item.line, sequence=item.sequences[0], message="no"))
    h.exit(1, STOPPED)
    assert h.statuses()[1] == "early_stopped"


def test_what_was_decided_is_stored_as_it_was_answered(h: Advised) -> None:
    h.decide(until_step=1)
    (stored,) = h.changes.decisions

    assert stored.decision({"lr": 0.1}) == Decision(
        kind=DecisionKind.START, number=1, parameters={"lr": 0.1}, until_step=1
    )


@pytest.mark.parametrize("until_step", [2**53 + 1, 2**63, 3**50, -(2**63)])
def test_a_decision_that_no_row_can_hold_pauses_its_experiment_at_that_line(h: Advised, until_step: int) -> None:
    (line,) = [item.line for item in h.xs.openings]
    h.decide(until_step=until_step)

    assert not h.store.queries.trials(h.experiment.id)
    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_FAILED)
    assert h.experiment.message.startswith(f"tuner, journal line {line}: until_step should be None, or a whole number")
    (payload,) = h.journal("algorithm_faulted")
    assert (payload["line"], payload["fault"]) == (line, "raised")
    h.resume()
    h.ready()
    h.decide(until_step=2**53)
    assert h.statuses() == {1: "running"}


def test_and_the_line_can_be_left_out(h: Advised) -> None:
    (line,) = [item.line for item in h.xs.openings]
    h.decide(until_step=2**63)
    h.skip(Queue.TUNER, line)
    assert h.experiment.status is ExperimentStatus.RUNNING
