"""What people change while a search goes on: its limits, its trials, what its tuner knows, and where it looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trials.wire.plain import to_plain
from tuner_service.dispatcher import experiments, growth, importing
from tuner_service.dispatcher.commands import (
    BudgetRaise,
    ExperimentChanged,
    LiveChange,
    OutcomesImported,
    SearchSpaceChanged,
    TrialAdded,
)
from tuner_service.dispatcher.items import CustomTrialAdded, Queue
from tuner_service.dispatcher.limits import ADDED_TRIALS_LIMIT, IMPORTED_OUTCOMES_LIMIT, TUNER_QUEUE_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.errors import ConflictError, Fault, InputError, NotFoundError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.rungs import NO_RUNGS, Rungs
from tuner_service.domain.search_space import alike
from tuner_service.domain.trial import SOURCE_CUSTOM, SOURCE_RETRY, Trial, TrialReason, TrialStatus

GOING_ON = frozenset({ExperimentStatus.RUNNING, ExperimentStatus.PAUSED})


def apply(step: Step, command: LiveChange) -> ExperimentState:
    """Take one change in; the experiment it is about."""
    xs = step.find(command.experiment_id)
    match command:
        case ExperimentChanged():
            _change(step, xs, command)
        case TrialAdded():
            _add_trial(step, xs, command)
        case OutcomesImported():
            _import(step, xs, command)
        case _:
            _change_space(step, xs, command)
    return xs


# ── limits and labels ───────────────────────────────────────────────────────────────────────────
def _change(step: Step, xs: ExperimentState, command: ExperimentChanged) -> None:
    """Lower limits hold from now on: attempts beyond the parallelism go on until they end."""
    experiment = xs.experiment
    of_running = command.budget != BudgetRaise() or command.priority is not None or command.preemptible is not None
    if experiment.status not in GOING_ON and of_running:
        ended = experiment.status.has_ended
        hint = f"use `tuner resume {xs.id}` with a new budget" if ended else "wait until it has stopped"
        raise ConflictError(
            f"experiment {xs.id} is {experiment.status.value}, so that only its name, project, note and tags can be "
            f"changed; for anything else {hint}",
            ("resume with another budget",) if ended else ("wait",),
        )
    budget = experiments.changed_budget(xs, command.budget)
    spec = experiment.spec
    if budget != spec.budget:
        spec = replace(spec, budget=budget)
    if command.name is not None and command.name != spec.name:
        spec = replace(spec, name=command.name)
    if command.project is not None and command.project != spec.project:
        spec = replace(spec, project=command.project)
    if command.preemptible is not None and command.preemptible is not spec.preemptible:
        spec = replace(spec, preemptible=command.preemptible)
    row = replace(
        experiment,
        spec=spec,
        note=experiment.note if command.note is None else command.note,
        tags=experiment.tags if command.tags is None else command.tags,
        priority=experiment.priority if command.priority is None else command.priority,
    )
    values = {"note": row.note, "tags": row.tags, "priority": row.priority}
    changed: dict[str, Any] = {name: value for name, value in values.items() if value != getattr(experiment, name)}
    if spec.budget is not experiment.spec.budget:
        changed["budget"] = to_plain(budget)
    if spec.name != experiment.spec.name:
        changed["name"] = spec.name
    if spec.project != experiment.spec.project:
        changed["project"] = spec.project
    if spec.preemptible is not experiment.spec.preemptible:
        changed["preemptible"] = spec.preemptible
    if changed:
        step.put_experiment(xs, row)
        step.journal(xs, LineKind.EXPERIMENT_CHANGED, to_plain(changed))
    if "budget" in changed and experiment.runs_added_only:
        experiments.mind_raise(step, xs)


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
def _add_trial(step: Step, xs: ExperimentState, command: TrialAdded) -> None:
    """A trial with parameters that a person chose. It uses none of the budget, and the tuner learns its outcome.

    An experiment that has ended runs it, and no other trial, and ends again.
    """
    experiment = xs.experiment
    if experiment.status not in GOING_ON and not experiment.status.has_ended:
        raise ConflictError(
            f"experiment {xs.id} is {experiment.status.value}; wait until it has stopped, then add trials to it",
            ("wait",),
        )
    _require_room(xs)
    if len(xs.trials_with(TrialStatus.WAITING)) >= ADDED_TRIALS_LIMIT:
        raise ConflictError(
            f"experiment {xs.id} has {ADDED_TRIALS_LIMIT} waiting trials, which is the limit; add more when some have "
            "started, or raise its parallelism",
            ("wait",),
        )
    _require_ended(xs, command.retry_of)
    if experiment.status.has_ended:
        experiments.reopen(step, xs)
    number = step.take_number(xs)
    payload = {"number": number, "parameters": command.parameters, "retry_of": command.retry_of}
    line = step.journal(xs, LineKind.TRIAL_ADDED, payload)
    step.add_trial(
        xs,
        Trial(
            experiment_id=xs.id,
            number=number,
            status=TrialStatus.WAITING,
            parameters=command.parameters,
            reason=TrialReason.ADDED,
            source=SOURCE_CUSTOM if command.retry_of is None else SOURCE_RETRY,
            retry_of=command.retry_of,
            decided_line=line,
            rungs=NO_RUNGS if experiment.spec.advisor is None else Rungs(segment_line=line),
            created_at=step.at,
        ),
    )
    step.put_experiment(xs, replace(xs.experiment, spared=xs.experiment.spared + 1))
    item = CustomTrialAdded(line=line, number=number, parameters=command.parameters)
    step.enqueue(xs, LineKind.TRIAL_ADDED, item)


def _require_ended(xs: ExperimentState, number: int | None) -> None:
    if number is None:
        return
    if not 0 < number < xs.experiment.next_number or number in (*xs.experiment.free_numbers, *xs.requested_numbers):
        raise NotFoundError("trial", f"{xs.id}/{number}")
    trial = xs.trials.get(number)
    if trial is not None and not trial.status.is_final:
        raise ConflictError(
            f"trial {xs.id}/{number} is {trial.status.value}; a trial is tried again when it has ended", ("wait",)
        )


# ── what the tuner knows ────────────────────────────────────────────────────────────────────────
def _import(step: Step, xs: ExperimentState, command: OutcomesImported) -> None:
    """Kept in any status: the tuner of one that has ended learns them when it is resumed."""
    results = sum(len(line.outcomes) for line in command.lines)
    if results > IMPORTED_OUTCOMES_LIMIT:
        message = f"{results} results at once; send at most {IMPORTED_OUTCOMES_LIMIT} in one request"
        raise InputError([Fault(pointer="", message=message)])
    _require_room(xs)
    importing.put(step, xs, command.lines)
    step.put_experiment(xs, replace(xs.experiment, tuner_waits=False))


def _change_space(step: Step, xs: ExperimentState, command: SearchSpaceChanged) -> None:
    """Holds for what is asked for from this line on, in any status. The spec keeps the space it began with.

    Who sends it again before the first was committed changes nothing.
    """
    if alike(command.search_space, xs.changed_space):
        return
    _require_room(xs)
    growth.search_from_now_on(step, xs, command.search_space)


def _require_room(xs: ExperimentState) -> None:
    depth = len(xs.queues[Queue.TUNER].pending)
    if depth >= TUNER_QUEUE_LIMIT:
        raise ConflictError(
            f"{depth} lines wait for the tuner of experiment {xs.id}, which is the limit; try again when it has taken "
            "some, or resume the experiment where it is paused",
            ("wait", "resume"),
        )
