"""What an experiment does next: ask, tell, launch, or end.

Called after every command from which something may follow, time passing among them; doing nothing is normal.

A deterministic experiment walks one fixed line of decisions: request 1 … request P, outcome 1, request P+1, outcome 2,
request P+2, …, where P is its parallelism. So request *n* knows the outcomes up to *n* − P, whatever ended when. A
trial that a person adds takes its place in that line from where it was added. With an advisor the outcome of a decision
is that its trial rests, or ends.
"""

from __future__ import annotations

from tuner_service.dispatcher import asks, endings, experiments, launching, phases, rungs, starting
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.dispatcher.limits import IDENTICAL_FAILURES_LEAST, RUNNING_TIME_SAVED_S, SUGGESTED_AHEAD_MAX
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialReason, TrialStatus
from tuner_service.domain.wording import counted


def advance(step: Step, xs: ExperimentState) -> None:
    """Everything that follows from the state by now. Repeating it changes nothing."""
    if xs.experiment.runs_added_only:
        _hold_others(step, xs)
    else:
        _mind_failures(step, xs)
        _mind_duration(step, xs)
    asks.take_back(step, xs)
    if xs.experiment.spec.deterministic:
        _walk(step, xs)
    else:
        phases.request_all(step, xs)
        while _room_for_request(xs):
            _request(step, xs)
    starting.end_pauses(step, xs)
    starting.launch_waiting(step)
    if xs.experiment.spec.deterministic:
        if xs.experiment.runs_added_only and _line_rests(xs):
            phases.rest(step, xs)
        phases.make_room(step, xs)
    else:
        phases.release(step, xs)
    asks.take_back(step, xs)
    _mind_end(step, xs)
    experiments.settle(step, xs)


# ── asking and telling ──────────────────────────────────────────────────────────────────────────
def _walk(step: Step, xs: ExperimentState) -> None:
    """``xs.untold`` are the trials whose outcome was not told; the first of them is told next."""
    while not xs.requests:
        if _request_is_due(xs):
            if xs.experiment.status is not ExperimentStatus.RUNNING or xs.experiment.runs_added_only:
                return  # the line of decisions waits: telling more first would change what the request knows
            _request(step, xs)
            return
        if not xs.untold:
            return
        next_told = xs.untold[0]
        if next_told.status.is_final:
            endings.tell(step.trial(xs, next_told.number))
            if not xs.experiment.runs_added_only:
                _mind_failures(step, xs)
        elif next_told.status is TrialStatus.PAUSED and next_told.reason is TrialReason.RUNG_REACHED:
            endings.tell_rest(step.trial(xs, next_told.number))
        else:
            phases.request_in_turn(step.trial(xs, next_told.number))
            return


def _line_rests(xs: ExperimentState) -> bool:
    """Whether the line of decisions goes on only when the experiment is resumed."""
    if xs.requests:
        return False
    first = xs.untold[0] if xs.untold else None
    is_held = first is not None and first.status is TrialStatus.PAUSED and first.reason is not TrialReason.RUNG_REACHED
    return is_held or _request_is_due(xs)


def _request_is_due(xs: ExperimentState) -> bool:
    experiment = xs.experiment
    return (
        not experiment.exhausted
        and not experiment.tuner_waits
        and len(xs.untold) < experiment.spec.budget.parallel
        and _has_something_to_run(xs)
    )


def _has_something_to_run(xs: ExperimentState) -> bool:
    """A new trial, or for an advisor one that rests; it is asked for these one at a time."""
    if experiments.has_budget(xs.experiment):
        return True
    if xs.experiment.spec.advisor is None:
        return False
    return any(trial.rests for trial in xs.trials.values()) and not any(not item.number for item in xs.openings)


def _room_for_request(xs: ExperimentState) -> bool:
    experiment = xs.experiment
    if experiment.status is not ExperimentStatus.RUNNING or experiment.exhausted or experiment.tuner_waits:
        return False
    if experiment.runs_added_only:
        return False
    outstanding = len(xs.openings)
    if outstanding >= experiment.spec.workers or not _has_something_to_run(xs):
        return False
    live = xs.count(TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.STOPPING)
    return live + outstanding < experiment.spec.budget.parallel + _ahead(xs)


def _ahead(xs: ExperimentState) -> int:
    """How many trials may be suggested before there is room for them; none where a later suggestion could be better."""
    return min(xs.experiment.spec.budget.parallel, SUGGESTED_AHEAD_MAX) if xs.worker.asks_ahead else 0


def _request(step: Step, xs: ExperimentState) -> None:
    number = step.take_number(xs) if experiments.has_budget(xs.experiment) else 0
    line = step.journal(xs, LineKind.SUGGESTION_REQUESTED, {"number": number})
    step.enqueue(xs, LineKind.SUGGESTION_REQUESTED, SuggestionRequested(line=line, number=number))


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def _mind_failures(step: Step, xs: ExperimentState) -> None:
    experiment = xs.experiment
    if experiment.status is not ExperimentStatus.RUNNING:
        return
    budget = experiment.spec.budget
    if experiment.failures >= budget.failures:
        message = f"{counted(experiment.failures, 'trial')} failed, which is the budget's limit of failures"
        why = Why(reason=ExperimentReason.TOO_MANY_FAILURES, message=message)
        launching.begin_stop(step, xs, ExperimentStatus.FAILED, why)
    elif experiment.same_errors >= max(budget.parallel, IDENTICAL_FAILURES_LEAST):
        message = f"the first {experiment.same_errors} trials failed with {_same_error(step, xs)}; fix it, then resume"
        step.move_experiment(
            xs, ExperimentStatus.PAUSED, Why(reason=ExperimentReason.IDENTICAL_FAILURES, message=message)
        )


def _same_error(step: Step, xs: ExperimentState) -> str:
    """In the words of the trial that was told last, which this step has changed."""
    alike = [t for t in step.changes.trials.values() if t.experiment_id == xs.id and t.message]
    told = [t for t in alike if t.fingerprint == xs.experiment.first_error]
    return f"the same error, {told[-1].message}" if told else "the same error"


def _mind_duration(step: Step, xs: ExperimentState) -> None:
    experiment = xs.experiment
    limit = experiment.spec.budget.duration_s
    if experiment.status is not ExperimentStatus.RUNNING or limit is None or experiment.running_since is None:
        return
    if experiment.running_s + step.at - experiment.running_since >= limit:
        message = f"ran for its {limit:g} s; trials that were running can go on with a longer duration"
        why = Why(reason=ExperimentReason.DURATION_REACHED, message=message)
        launching.begin_stop(step, xs, ExperimentStatus.COMPLETED, why)
    elif step.at - experiment.running_since >= RUNNING_TIME_SAVED_S:
        step.put_experiment(xs, experiment)


def _hold_others(step: Step, xs: ExperimentState) -> None:
    """What was asked for before the end may be suggested only now: it goes on when the experiment does."""
    why = Why(reason=TrialReason.EXPERIMENT_STOPPED, message="goes on when the experiment is resumed")
    for ts in step.trials(xs, TrialStatus.WAITING):
        if not ts.trial.is_added:
            launching.stop_trial(ts, TrialStatus.PAUSED, why)


def _mind_added(step: Step, xs: ExperimentState) -> None:
    going_on = xs.count(TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.STOPPING)
    if xs.experiment.status is not ExperimentStatus.RUNNING or going_on:
        return
    is_told = not xs.queues[Queue.TUNER].pending or not xs.worker.is_to_answer
    if not is_told:
        return  # the tuner learns the results before it ends
    if xs.experiment.stop_to is ExperimentStatus.COMPLETED:
        rungs.give_up_all(step, xs)
    experiments.end_again(step, xs)


def _mind_end(step: Step, xs: ExperimentState) -> None:
    experiment = xs.experiment
    if experiment.runs_added_only:
        _mind_added(step, xs)
        return
    if experiment.status is not ExperimentStatus.RUNNING or xs.has_untold or xs.requests:
        return
    if experiment.exhausted:
        why = Why(reason=ExperimentReason.SPACE_EXHAUSTED, message=experiments.nothing_left(experiment.spec))
        if experiment.spec.advisor is not None:
            why = Why(reason=ExperimentReason.ADVISOR_DONE, message="the advisor has nothing left to run")
        rungs.give_up_all(step, xs)
        experiments.complete(step, xs, why)
    elif not experiments.has_budget(experiment):
        trials = experiment.spec.budget.trials
        message = "the one trial is done" if trials == 1 else f"all {trials} trials are done"
        rungs.give_up_all(step, xs)
        experiments.complete(step, xs, Why(reason=ExperimentReason.BUDGET_REACHED, message=message))
    else:  # only a tuner that waits is not asked for more
        message = "the tuner waits for an outcome, and no trial is running that could give one"
        step.move_experiment(
            xs, ExperimentStatus.PAUSED, Why(reason=ExperimentReason.ALGORITHM_FAILED, message=message)
        )
