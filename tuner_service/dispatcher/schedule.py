"""What an experiment does next: ask, tell, launch, or end. Called after every command; doing nothing is normal.

A deterministic experiment walks one fixed line of decisions: request 1 … request P, outcome 1, request P+1, outcome 2,
request P+2, …, where P is its parallelism. So request *n* knows the outcomes up to *n* − P, whatever ended when.
"""

from __future__ import annotations

from tuner_service.dispatcher import endings, experiments, launching
from tuner_service.dispatcher.items import SuggestionRequested
from tuner_service.dispatcher.limits import IDENTICAL_FAILURES_LEAST, RUNNING_TIME_SAVED_S
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialStatus


def advance(step: Step, xs: ExperimentState) -> None:
    """Everything that follows from the state by now. Repeating it changes nothing."""
    _mind_failures(step, xs)
    _mind_duration(step, xs)
    if xs.experiment.spec.deterministic:
        _walk(step, xs)
    elif _room_for_request(xs):
        _request(step, xs)
    launching.launch_waiting(step, xs)
    _mind_end(step, xs)
    experiments.settle(step, xs)


# ── asking and telling ──────────────────────────────────────────────────────────────────────────
def _walk(step: Step, xs: ExperimentState) -> None:
    while not xs.suggestion_is_outstanding:
        if _request_is_due(xs):
            if xs.experiment.status is not ExperimentStatus.RUNNING:
                return  # the line of decisions waits: telling more first would change what the request knows
            _request(step, xs)
            return
        next_told = xs.trials.get(xs.experiment.told_number + 1)
        if next_told is None or not next_told.status.is_final:
            return
        endings.tell(step, xs, next_told.number)
        _mind_failures(step, xs)


def _request_is_due(xs: ExperimentState) -> bool:
    experiment = xs.experiment
    return (
        not experiment.exhausted
        and not xs.tuner_waits
        and experiment.next_number <= experiment.told_number + experiment.spec.budget.parallel
        and experiments.has_budget(experiment)
    )


def _room_for_request(xs: ExperimentState) -> bool:
    experiment = xs.experiment
    if experiment.status is not ExperimentStatus.RUNNING or experiment.exhausted or xs.tuner_waits:
        return False
    if xs.suggestion_is_outstanding or not experiments.has_budget(experiment):
        return False
    live = xs.trials_with(TrialStatus.WAITING, TrialStatus.RUNNING, TrialStatus.STOPPING)
    return len(live) < experiment.spec.budget.parallel


def _request(step: Step, xs: ExperimentState) -> None:
    number = xs.experiment.next_number
    line = step.journal(xs, LineKind.SUGGESTION_REQUESTED, {"number": number})
    step.enqueue(xs, LineKind.SUGGESTION_REQUESTED, SuggestionRequested(line=line, number=number))


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def _mind_failures(step: Step, xs: ExperimentState) -> None:
    experiment = xs.experiment
    if experiment.status is not ExperimentStatus.RUNNING:
        return
    budget = experiment.spec.budget
    if experiment.failures >= budget.failures:
        message = f"{experiment.failures} trials failed, which is the budget's limit of failures"
        why = Why(reason=ExperimentReason.TOO_MANY_FAILURES, message=message)
        launching.begin_stop(step, xs, ExperimentStatus.FAILED, why)
    elif experiment.same_errors >= max(budget.parallel, IDENTICAL_FAILURES_LEAST):
        message = f"the first {experiment.same_errors} trials failed with the same error; fix it, then resume"
        step.move_experiment(
            xs, ExperimentStatus.PAUSED, Why(reason=ExperimentReason.IDENTICAL_FAILURES, message=message)
        )


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
        step.put_experiment(xs)


def _mind_end(step: Step, xs: ExperimentState) -> None:
    experiment = xs.experiment
    if experiment.status is not ExperimentStatus.RUNNING or xs.trials or xs.suggestion_is_outstanding:
        return
    if experiment.exhausted:
        message = "every point of the search space was tried"
        experiments.complete(step, xs, Why(reason=ExperimentReason.SPACE_EXHAUSTED, message=message))
    elif not experiments.has_budget(experiment):
        message = f"all {experiment.spec.budget.trials} trials are done"
        experiments.complete(step, xs, Why(reason=ExperimentReason.BUDGET_REACHED, message=message))
    else:  # only a tuner that waits is not asked for more
        message = "the tuner waits for an outcome, and no trial is running that could give one"
        step.move_experiment(
            xs, ExperimentStatus.PAUSED, Why(reason=ExperimentReason.ALGORITHM_FAILED, message=message)
        )
