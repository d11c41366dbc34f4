"""What people ask of experiments: create, pause, resume, stop, delete; and how an experiment comes to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trials.wire.messages import RemoveExperiment
from trials.wire.plain import to_plain
from tuner_service.dispatcher import algorithms, archiving, devices, importing, launching
from tuner_service.dispatcher.changes import SearchSpaceRevision, StoredIdempotencyKey
from tuner_service.dispatcher.commands import (
    BudgetRaise,
    ExperimentCreated,
    ExperimentDeleted,
    ExperimentPaused,
    ExperimentResumed,
    ExperimentStopped,
    TrialStopped,
)
from tuner_service.dispatcher.effects import TellAll
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.errors import ConflictError, NotFoundError
from tuner_service.domain.experiment import (
    Budget,
    CodeOrigin,
    Experiment,
    ExperimentReason,
    ExperimentSpec,
    ExperimentStatus,
)
from tuner_service.domain.resources import DEFAULT_GROUP
from tuner_service.domain.trial import TrialReason, TrialStatus
from tuner_service.domain.wording import counted

WANTED_BOUND = "its budget needs trials, or a duration, or both, unless its tuner is grid; one training needs trials"


# ── commands ────────────────────────────────────────────────────────────────────────────────────
def create(step: Step, command: ExperimentCreated) -> None:
    if command.experiment_id in step.state.experiments:
        raise ConflictError(f"experiment {command.experiment_id!r} exists already; ids are never used twice")
    spec = command.spec
    devices.require(step, spec)
    xs = ExperimentState(
        experiment=Experiment(
            id=command.experiment_id,
            spec=spec,
            status=ExperimentStatus.CREATED,
            created_at=step.at,
            note=command.note,
            tags=command.tags,
            priority=command.priority,
        )
    )
    step.state.experiments[xs.id] = xs
    step.put_experiment(xs, replace(xs.experiment, started_at=step.at))
    if command.code is not None and spec.trial.code_digest is not None:
        step.changes.blobs[spec.trial.code_digest] = command.code
    _keep_changes(step, spec.trial.code_origin, command.code_changes)
    if command.idempotency is not None:
        step.changes.idempotency_keys.append(
            StoredIdempotencyKey(
                key=command.idempotency.key,
                body_digest=command.idempotency.body_digest,
                experiment_id=xs.id,
                at=step.at,
            )
        )
    step.move_experiment(xs, ExperimentStatus.RUNNING, Why(reason=ExperimentReason.REQUESTED))
    step.changes.search_spaces.append(
        SearchSpaceRevision(
            experiment_id=xs.id, line=xs.experiment.next_line - 1, search_space=spec.search_space, at=step.at
        )
    )
    importing.put(step, xs, command.known)
    algorithms.start_worker(step, xs)


def pause(step: Step, command: ExperimentPaused) -> None:
    """No trial is asked for or launched any more; those running go on, and their reports are kept."""
    xs = step.find(command.experiment_id)
    if xs.experiment.status is not ExperimentStatus.RUNNING:
        raise _wrong_state(xs, "paused")
    why = Why(reason=ExperimentReason.REQUESTED, message="paused; running trials go on, no new ones start")
    step.move_experiment(xs, ExperimentStatus.PAUSED, why)


def resume(step: Step, command: ExperimentResumed) -> None:
    """Go on where it was: paused trials from their checkpoints, the tuner from its history."""
    xs = step.find(command.experiment_id)
    before = xs.experiment
    budget = _raised(xs, command.budget)
    if before.status is ExperimentStatus.STOPPING:
        raise ConflictError(f"experiment {xs.id} is stopping; wait until it has stopped, then resume it", ("wait",))
    if ExperimentStatus.COMPLETED in {before.status, before.stop_to} and (fault := _lack_of_room(xs, budget)):
        raise fault
    timeout_s = before.spec.algorithm_timeout_s
    asked_s = timeout_s if command.algorithm_timeout_s is None else command.algorithm_timeout_s
    is_told_less_often = asked_s < timeout_s  # how often its worker says that it comes on follows from its timeout
    begins_anew = command.code_digest is not None or is_told_less_often
    asks_nothing = not begins_anew and (budget, asked_s, command.skip) == (before.spec.budget, timeout_s, None)
    if before.status is ExperimentStatus.RUNNING and asks_nothing and not before.runs_added_only:
        return
    archiving.require_all_metrics(xs)
    _require_group(step, xs)
    if command.skip is not None:
        algorithms.skip_line(step, xs, *command.skip)
    _change_spec(step, xs, budget, command)
    if before.status is ExperimentStatus.RUNNING:
        if begins_anew:
            _start_worker_anew(step, xs)  # the algorithms may be classes of the new code
        if not before.runs_added_only:
            return
    step.put_experiment(xs, replace(xs.experiment, failures=0, first_error="", same_errors=0, stop_to=None))
    if before.status is ExperimentStatus.RUNNING:
        step.put_experiment(xs, replace(xs.experiment, reason=ExperimentReason.REQUESTED, message="resumed"))
    else:
        step.move_experiment(xs, ExperimentStatus.RUNNING, Why(reason=ExperimentReason.REQUESTED, message="resumed"))
    if not xs.trials:
        # No trial could give the outcome that the tuner waits for.
        step.put_experiment(xs, replace(xs.experiment, tuner_waits=False))
    _wake_trials(step, xs)
    if not xs.worker.takes_items or begins_anew:
        _start_worker_anew(step, xs)


def _wake_trials(step: Step, xs: ExperimentState) -> None:
    for ts in step.trials(xs, TrialStatus.PAUSED):
        if ts.trial.reason is TrialReason.RUNG_REACHED:
            continue  # it goes on when its advisor promotes it
        ts.move(TrialStatus.WAITING, Why(reason=TrialReason.RESUMED))


def mind_raise(step: Step, xs: ExperimentState) -> None:
    """A completed experiment that runs what was added to it goes on wholly once its budget has room again."""
    experiment = xs.experiment
    if experiment.stop_to is not ExperimentStatus.COMPLETED or _lack_of_room(
        xs, experiment.spec.budget, of_added=False
    ):
        return
    why = Why(reason=ExperimentReason.REQUESTED, message="its budget was raised")
    step.put_experiment(xs, replace(experiment, stop_to=None, reason=why.reason, message=why.message))
    _wake_trials(step, xs)


def reopen(step: Step, xs: ExperimentState) -> None:
    """An experiment that has ended runs what is added to it now, and nothing else; then it ends as it had ended."""
    ended = xs.experiment.status
    archiving.require_all_metrics(xs)
    _require_group(step, xs)
    message = f"had {ended.value}; runs the trials that were added to it since, and ends again"
    why = Why(reason=ExperimentReason.TRIALS_ADDED, message=message)
    step.move_experiment(xs, ExperimentStatus.RUNNING, why, replace(xs.experiment, stop_to=ended))
    _start_worker_anew(step, xs)


def end_again(step: Step, xs: ExperimentState) -> None:
    """What was added after its end is done: back to the status it had, with a reason by the same rules."""
    experiment, target = xs.experiment, xs.experiment.stop_to
    assert target is not None  # noqa: S101  # asked only of one that runs added trials alone
    budget = experiment.spec.budget
    done = "the trials that were added after its end are done"
    if target is ExperimentStatus.STOPPED:
        launching.begin_stop(step, xs, target, Why(reason=ExperimentReason.REQUESTED, message=f"{done}; stopped"))
    elif target is ExperimentStatus.FAILED:
        message = (
            f"{done}; {counted(experiment.failures, 'trial')} failed, and the budget's limit of failures is "
            f"{budget.failures}"
        )
        launching.begin_stop(step, xs, target, Why(reason=ExperimentReason.TOO_MANY_FAILURES, message=message))
    elif budget.duration_s is not None and experiment.running_s >= budget.duration_s:
        message = f"{done}; it ran for its {budget.duration_s:g} s"
        launching.begin_stop(step, xs, target, Why(reason=ExperimentReason.DURATION_REACHED, message=message))
    else:
        reason = ExperimentReason.SPACE_EXHAUSTED if experiment.exhausted else ExperimentReason.BUDGET_REACHED
        step.move_experiment(xs, target, Why(reason=reason, message=done), replace(experiment, stop_to=None))


def _require_group(step: Step, xs: ExperimentState) -> None:
    group = xs.experiment.spec.quota_group
    if group != DEFAULT_GROUP and group not in step.state.groups:
        raise ConflictError(f"experiment {xs.id} draws from quota group {group!r}, which was deleted; make it again")


def _start_worker_anew(step: Step, xs: ExperimentState) -> None:
    """With a clean record: a person has looked at what went wrong before."""
    xs.worker.deaths = xs.worker.unready_deaths = xs.worker.idle_deaths = 0
    xs.worker.given_up = False
    for waiting in xs.queues.values():
        waiting.deaths = waiting.retries = 0
    algorithms.start_worker(step, xs)


def stop(step: Step, command: ExperimentStopped) -> None:
    xs = step.find(command.experiment_id)
    if xs.experiment.status is ExperimentStatus.STOPPED:
        return
    if xs.experiment.status.has_ended or xs.experiment.status is ExperimentStatus.STOPPING:
        raise _wrong_state(xs, "stopped")
    why = Why(reason=ExperimentReason.REQUESTED, message="stopped; `tuner resume` continues it")
    launching.begin_stop(step, xs, ExperimentStatus.STOPPED, why)


def delete(step: Step, command: ExperimentDeleted) -> None:
    """One whose rows are damaged too: what runs of it is a stray then, which the next connection of its agent ends."""
    experiment_id = command.experiment_id
    aside = step.state.set_aside.pop(experiment_id, None)
    if aside is None:
        xs = step.find(experiment_id)
        if not xs.experiment.status.has_ended:
            raise _wrong_state(xs, "deleted")
        archiving.require_not_moving(xs)
        del step.state.experiments[experiment_id]
    else:
        for held in aside.holding:
            step.state.ledger.remove(held)
    step.changes.experiments.pop(experiment_id, None)
    step.changes.deleted_experiments.append(experiment_id)
    step.do(TellAll(message=RemoveExperiment(experiment_id=experiment_id)))


def stop_trial(step: Step, command: TrialStopped) -> None:
    """A person gives one trial up. It has no outcome the tuner could learn a value from."""
    xs = step.find(command.experiment_id)
    trial = xs.trials.get(command.number)
    if trial is None and command.number >= xs.experiment.next_number:
        raise NotFoundError("trial", f"{xs.id}/{command.number}")
    if trial is None or trial.status.is_final:
        raise ConflictError(f"trial {xs.id}/{command.number} has ended already")
    why = Why(reason=TrialReason.STOPPED_BY_USER, message="stopped by request")
    ts = step.trial(xs, trial.number)
    ts.journal(LineKind.TRIAL_STOP_REQUESTED, {})
    launching.stop_trial(ts, TrialStatus.CANCELED, why)


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def settle(step: Step, xs: ExperimentState) -> None:
    """Bring a stopping experiment to its end once nothing of it runs, and let an idle worker go."""
    if xs.experiment.status is ExperimentStatus.STOPPING:
        judging = xs.worker.is_to_answer
        deterministic = xs.experiment.spec.deterministic
        # An end waits for its judgement, or for parameters that are being chosen for the trial.
        open_ends = any(t.pending_end or (t.status.is_final and not deterministic) for t in xs.trials.values())
        if not xs.attempts and not (open_ends and judging):
            target = xs.experiment.stop_to
            assert target is not None  # noqa: S101  # set by the only move that leads here
            experiment = xs.experiment
            why = Why(reason=experiment.reason, message=experiment.message, detail=experiment.detail)
            step.move_experiment(xs, target, why, replace(experiment, stop_to=None))
    if xs.experiment.status.has_ended:
        algorithms.stop_worker(step, xs)
    elif xs.experiment.status is ExperimentStatus.PAUSED:
        algorithms.wake_worker(step, xs)


def complete(step: Step, xs: ExperimentState, why: Why[ExperimentReason]) -> None:
    step.move_experiment(xs, ExperimentStatus.COMPLETED, why)


def has_budget(experiment: Experiment, budget: Budget | None = None) -> bool:
    """Whether one more trial may be asked for: told failures and canceled trials used none."""
    allowed = (budget or experiment.spec.budget).trials
    return allowed is None or used_trials(experiment) < allowed


def used_trials(experiment: Experiment) -> int:
    """How many trials of the budget are used or asked for."""
    return experiment.next_number - 1 - len(experiment.free_numbers) - experiment.spared


def changed_budget(xs: ExperimentState, wanted: BudgetRaise) -> Budget:
    """The budget with what is wanted. ConflictError for what a deterministic experiment cannot change."""
    experiment, budget = xs.experiment, xs.experiment.spec.budget
    if experiment.spec.deterministic and (wanted.parallel is not None or wanted.changes_duration):
        raise ConflictError(
            f"experiment {experiment.id} is deterministic: its parallelism and duration are part of the result and "
            "cannot change; change only its trials, or start a new experiment"
        )
    changed = wanted.applied_to(budget)
    if wanted.unbounded and not may_have(experiment.spec, changed):
        raise ConflictError(f"experiment {experiment.id} cannot do without that bound: {WANTED_BOUND}")
    return changed


def may_have(spec: ExperimentSpec, budget: Budget) -> bool:
    """Whether a search like that comes to an end with ``budget``, as far as budgets can say it."""
    if not spec.is_search:
        return budget.trials is not None
    ends_itself = spec.advisor is None and spec.tuner.name == "grid"
    return ends_itself or budget.trials is not None or budget.duration_s is not None


def nothing_left(spec: ExperimentSpec) -> str:
    """Why a tuner that has said so proposes no more, for people."""
    is_grid = spec.tuner.name == "grid"
    return "every point of the search space was tried" if is_grid else "the tuner has nothing left to propose"


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────
def _raised(xs: ExperimentState, wanted: BudgetRaise) -> Budget:
    """The budget with what is wanted. Fewer trials than it has already are refused."""
    experiment, budget = xs.experiment, changed_budget(xs, wanted)
    used = used_trials(experiment)
    if wanted.trials is not None and wanted.trials < used:
        raise ConflictError(
            f"experiment {experiment.id} has {counted(used, 'trial')} of its budget already, so {wanted.trials} "
            f"are too few; to end it now, use `tuner stop {experiment.id}`"
        )
    return budget


def _lack_of_room(xs: ExperimentState, budget: Budget, *, of_added: bool = True) -> ConflictError | None:
    """Why a completed experiment cannot go on within ``budget``; None where it can.

    ``of_added``: trials that were added to it and have not ended are a reason to go on.
    """
    experiment = xs.experiment
    interrupted = bool(xs.requests) or any(
        not trial.status.is_final and (of_added or not trial.is_added) for trial in xs.trials.values()
    )
    if experiment.exhausted and not interrupted:
        return ConflictError(_cannot_go_on(experiment))
    out_of_time = budget.duration_s is not None and experiment.running_s >= budget.duration_s
    if out_of_time or not (interrupted or has_budget(experiment, budget)):
        spent = f"{budget.duration_s:g} s" if out_of_time else counted(budget.trials or 0, "trial")
        option = "--duration" if out_of_time else "--trials"
        return ConflictError(
            f"experiment {experiment.id} is completed: its budget of {spent} is used up; "
            f"raise it with `tuner resume {experiment.id} {option} N`",
            ("resume with a raised budget", "delete"),
        )
    return None


def _cannot_go_on(experiment: Experiment) -> str:
    """Whatever the budget."""
    if experiment.spec.advisor is not None:
        return (
            f"the advisor of experiment {experiment.id} has run all that it planned; start a new experiment, with "
            f"`warm_start: [{experiment.id}]` where that is to know the results"
        )
    return (
        f"experiment {experiment.id} cannot go on: {nothing_left(experiment.spec)}; change its search space to a "
        "larger one first, or start a new experiment"
    )


def _change_spec(step: Step, xs: ExperimentState, budget: Budget, command: ExperimentResumed) -> None:
    spec = replace(xs.experiment.spec, budget=budget)
    changed: dict[str, Any] = {}
    if budget != xs.experiment.spec.budget:
        changed["budget"] = to_plain(budget)
    if command.code_digest is not None:
        if command.code is not None:
            step.changes.blobs[command.code_digest] = command.code
        _keep_changes(step, command.code_origin, command.code_changes)
        template = replace(spec.trial, code_digest=command.code_digest, code_origin=command.code_origin)
        spec = replace(spec, trial=template)
        changed["code_digest"] = command.code_digest
    if command.algorithm_timeout_s not in {None, spec.algorithm_timeout_s}:
        spec = replace(spec, algorithm_timeout_s=command.algorithm_timeout_s)
        changed["algorithm_timeout"] = command.algorithm_timeout_s
    if changed:
        step.put_experiment(xs, replace(xs.experiment, spec=spec))
        step.journal(xs, LineKind.EXPERIMENT_CHANGED, changed)


def _keep_changes(step: Step, origin: CodeOrigin | None, changes: bytes | None) -> None:
    if origin is not None and origin.changes_digest is not None and changes is not None:
        step.changes.blobs[origin.changes_digest] = changes


def _wrong_state(xs: ExperimentState, verb: str) -> ConflictError:
    status, allowed = xs.experiment.status.value, _allowed_verbs(xs)
    return ConflictError(f"experiment {xs.id} is {status} and cannot be {verb}; allowed: {', '.join(allowed)}", allowed)


def _allowed_verbs(xs: ExperimentState) -> tuple[str, ...]:
    match xs.experiment.status:
        case ExperimentStatus.RUNNING | ExperimentStatus.CREATED:
            return ("pause", "stop")
        case ExperimentStatus.PAUSED:
            return ("resume", "stop")
        case ExperimentStatus.STOPPING:
            return ("wait",)
        case _:
            return ("resume", "delete")
