"""How trials come to their end, and how their end is told.

An attempt that ended may lead to a new attempt or to the end of its trial. In a deterministic experiment an end waits
until every earlier report of the trial is assessed (a stop wins over whatever came after it), and ends are told in the
order of trial numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trials.wire.plain import to_plain
from trials.wire.records import ExitRecord
from tuner_service.dispatcher import exits
from tuner_service.dispatcher.changes import MetricsCut
from tuner_service.dispatcher.items import MetricsReported, Queue, StopAdvised, TrialEnded, TrialRested
from tuner_service.dispatcher.limits import DEATHS_WITHOUT_PROGRESS_LIMIT, RETRY_PAUSE_LIMIT_S, RETRY_PAUSE_S
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.experiment import FinalFrom
from tuner_service.domain.objectives import further_value, further_values
from tuner_service.domain.trial import Attempt, PendingEnd, Trial, TrialOutcome, TrialReason, TrialStatus

RETRY_DOUBLINGS_LIMIT = 10  # beyond, every pause is the longest one
NOT_ALIKE = "not alike"  # beside fingerprints: the trials told first did not all fail with one error

# Where a trial that was asked to stop ends up, by why it was asked.
STOP_TARGETS = {
    TrialReason.STOPPED_BY_ASSESSOR: TrialStatus.EARLY_STOPPED,
    TrialReason.STOPPED_BY_USER: TrialStatus.CANCELED,
    TrialReason.EXPERIMENT_STOPPED: TrialStatus.PAUSED,
    TrialReason.RUNG_REACHED: TrialStatus.PAUSED,
}


# Stopped by nobody's wish; or it fails.
GOES_ON = frozenset({TrialReason.HEARTBEAT_MISSED, TrialReason.DEVICE_LOST, TrialReason.PREEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    reason: TrialReason
    message: str
    fingerprint: str


def attempt_ended(step: Step, xs: ExperimentState, ended: Attempt, record: ExitRecord, *, lost: str = "") -> None:
    """The live attempt of its trial is gone, and ``record`` says how: decide what becomes of the trial.

    ``lost``: which of its devices cannot be used any more. Then its end, unless all went well, is not its own doing.
    """
    number = ended.key.number
    trial = xs.trials[number]
    meaning = _meaning(xs, ended, record)
    if lost and not isinstance(meaning, exits.Ended):
        meaning = exits.Interrupted(reason=TrialReason.DEVICE_LOST, message=lost)
    if trial.status is TrialStatus.STOPPING and trial.reason is TrialReason.RUNG_REACHED:
        _left_at_rung(step, xs, ended, record)
        return
    if trial.status is TrialStatus.STOPPING and trial.reason not in GOES_ON:
        target = STOP_TARGETS[trial.reason]
        if target is not TrialStatus.PAUSED:
            end_trial(step, xs, number, target, Why(reason=trial.reason, message=trial.message))
            return
        if not isinstance(meaning, exits.Ended):
            why = Why(reason=TrialReason.EXPERIMENT_STOPPED, message=trial.message)
            step.move_trial(xs, number, TrialStatus.PAUSED, why)
            return
    if trial.status is TrialStatus.STOPPING and not isinstance(meaning, exits.Ended):
        if trial.reason is TrialReason.PREEMPTED:  # it made room: no death of its own
            _go_on(step, xs, number, Why(reason=trial.reason, message=trial.message))
            return
        if trial.reason is TrialReason.DEVICE_LOST:
            meaning = exits.Interrupted(reason=trial.reason, message=trial.message)
        else:
            meaning = exits.Died(reason=TrialReason.HEARTBEAT_MISSED, message=trial.message, fingerprint="heartbeat")
    match meaning:
        case exits.Ended():
            _ran_to_its_end(step, xs, ended)
        case exits.Died():
            failure = _Failure(reason=meaning.reason, message=meaning.message, fingerprint=meaning.fingerprint)
            _died(step, xs, number, failure)
        case _:
            _interrupted(step, xs, number, meaning)


def _meaning(xs: ExperimentState, ended: Attempt, record: ExitRecord) -> exits.Meaning:
    has_result = xs.experiment.spec.objective.metric in xs.trials[ended.key.number].final
    return exits.meaning(record, was_told=ended.half_way is not None, has_result=has_result)


# ── rest ────────────────────────────────────────────────────────────────────────────────────────
def _left_at_rung(step: Step, xs: ExperimentState, ended: Attempt, record: ExitRecord) -> None:
    """However the attempt ended, the trial did what was decided; unless it was done altogether.

    Deterministic: a fork of it may not depend on what happened just then. So it comes to its rung once more where it
    was killed before it had saved what it would have rested with, or before it was told to rest and so might have
    ended there; or where the advisor's word came while it ran on.
    """
    number = ended.key.number
    trial, meaning = xs.trials[number], _meaning(xs, ended, record)
    if isinstance(meaning, exits.Ended) and _has_result(xs, trial):
        _ran_to_its_end(step, xs, ended)
        return
    was_killed = isinstance(meaning, exits.Interrupted) and record.cause not in {"stopped", "exited"}
    deaths = trial.deaths_without_progress + was_killed
    may_differ = xs.experiment.spec.deterministic and (was_killed or was_late(trial))
    if may_differ and may_end_at_rung(trial, ended) and trial.rung_step is not None:
        forget_beyond(step, xs, number, trial.rung_step - 1)
    if may_differ and deaths < DEATHS_WITHOUT_PROGRESS_LIMIT and not has_saved_at_rung(xs, trial):
        step.put_trial(xs, number, deaths_without_progress=deaths)
        come_again(step, xs, number)
    else:
        rest_later(step, xs, number)


def may_end_at_rung(trial: Trial, attempt: Attempt) -> bool:
    """Deterministic: whether its script may end by itself where it is to rest, not having been told of that."""
    return not was_late(trial) and attempt.half_way is None


def forget_beyond(step: Step, xs: ExperimentState, number: int, at_step: int) -> None:
    kept = xs.checkpoints.get(number, [])
    for beyond in [c for c in kept if c.step > at_step]:
        kept.remove(beyond)
        step.changes.dropped_checkpoints.append(beyond)


def was_late(trial: Trial) -> bool:
    """Whether the advisor said while it ran that it rests, and not before it began to run."""
    return trial.until_step is None or trial.until_step > (trial.rung_step or 0)


def has_saved_at_rung(xs: ExperimentState, trial: Trial) -> bool:
    return any(checkpoint.step == trial.rung_step for checkpoint in xs.checkpoints.get(trial.number, []))


def come_again(step: Step, xs: ExperimentState, number: int) -> None:
    """The trial runs to its rung once more, from its newest checkpoint before that; it has no attempt."""
    trial = step.put_trial(xs, number, until_step=xs.trials[number].rung_step, rung_reached=False, pending_end=None)
    if trial.status in {TrialStatus.RUNNING, TrialStatus.STOPPING}:
        message = f"ended without a checkpoint at step {trial.rung_step}, where it is to rest; runs to there once more"
        _go_on(step, xs, number, Why(reason=TrialReason.PREEMPTED, message=message))


def rest_later(step: Step, xs: ExperimentState, number: int) -> None:
    """The trial rests now, or once what it reported is judged where the experiment is deterministic."""
    end = PendingEnd(status=TrialStatus.PAUSED, reason=TrialReason.RUNG_REACHED, message=xs.trials[number].message)
    _finish(step, xs, number, end)


def rest(step: Step, xs: ExperimentState, number: int, why: Why) -> None:
    step.move_trial(xs, number, TrialStatus.PAUSED, why, pending_end=None)
    tell_rest_now(step, xs, number)


def tell_rest_now(step: Step, xs: ExperimentState, number: int) -> None:
    """Deterministic: in its turn."""
    if not xs.experiment.spec.deterministic:
        tell_rest(step, xs, number)


def tell_rest(step: Step, xs: ExperimentState, number: int) -> None:
    """Tell the advisor that the trial waits to be promoted."""
    at_step = xs.trials[number].rung_step or 0
    line = step.journal(xs, LineKind.TRIAL_RESTED, {"number": number, "step": at_step})
    step.put_trial(xs, number, rested_line=line, rested_step=at_step)
    step.put_experiment(xs, tuner_waits=False)
    step.enqueue(xs, LineKind.TRIAL_RESTED, TrialRested(line=line, number=number, step=at_step))


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def _ran_to_its_end(step: Step, xs: ExperimentState, ended: Attempt) -> None:
    number = ended.key.number
    trial, spec = xs.trials[number], xs.experiment.spec
    values = {spec.objective.metric: _final_value(trial, spec.trial.final, spec.objective.metric)[0]}
    for objective in spec.objective.further:
        values[objective.metric] = further_value(trial, objective, spec.trial.final)
    missing = next((metric for metric, value in values.items() if value is None), None)
    if missing is None:
        _finish(step, xs, number, PendingEnd(status=TrialStatus.SUCCEEDED, reason=TrialReason.FINAL_METRIC, message=""))
        return
    seen = ", ".join(trial.metric_names) or "none"
    message = (
        f"exited with code 0 and reported no final {missing!r} (metrics seen: {seen}); call "
        "report_final, or set trial.final to last or best"
    )
    if ended.message:  # nearly always the reason
        message += f"; {ended.message}"
    _failed(
        step, xs, number, _Failure(reason=TrialReason.NO_FINAL_METRIC, message=message, fingerprint="no final metric")
    )


def _died(step: Step, xs: ExperimentState, number: int, failure: _Failure) -> None:
    charged = xs.trials[number].charged + 1
    step.put_trial(xs, number, charged=charged)
    if charged < xs.experiment.spec.trial.max_attempts:
        why = Why(reason=failure.reason, message=f"{failure.message}; tried again")
        _go_on(step, xs, number, why, pause_s=retry_pause(charged))
    else:
        _failed(step, xs, number, failure)


def _interrupted(step: Step, xs: ExperimentState, number: int, meaning: exits.Interrupted) -> None:
    deaths = xs.trials[number].deaths_without_progress + 1
    step.put_trial(xs, number, deaths_without_progress=deaths)
    if deaths < DEATHS_WITHOUT_PROGRESS_LIMIT:
        why = Why(reason=meaning.reason, message=meaning.message)
        _go_on(step, xs, number, why, pause_s=retry_pause(deaths))
    else:
        message = f"{meaning.message}, for the {deaths}th time without a new report"
        _failed(step, xs, number, _Failure(reason=TrialReason.CRASH_LOOP, message=message, fingerprint="crash loop"))


def retry_pause(failed: int) -> float:
    """The seconds before the next attempt of a trial after so many that failed: what fails fast is not tried at once.

    Counted are attempts that are charged, or deaths in a row without progress, whichever the last one was.
    """
    if failed <= 1:
        return 0.0
    doublings = min(failed - 2, RETRY_DOUBLINGS_LIMIT)
    return min(RETRY_PAUSE_LIMIT_S, RETRY_PAUSE_S * 2.0**doublings)


def hold_again(step: Step, xs: ExperimentState) -> None:
    """After a restart, which has forgotten when a pause began: it begins anew."""
    for trial in xs.trials_with(TrialStatus.WAITING):
        pause_s = retry_pause(max(trial.charged, trial.deaths_without_progress))
        if pause_s:
            xs.held_until[trial.number] = step.at + pause_s


def _go_on(step: Step, xs: ExperimentState, number: int, why: Why, *, pause_s: float = 0.0) -> None:
    """The same trial in a new attempt, as soon as there is room and the pause is over."""
    if pause_s:
        why = replace(why, message=f"{why.message}; waits {pause_s:g} s before its next attempt")
    step.move_trial(xs, number, TrialStatus.WAITING, why)
    if pause_s:
        xs.held_until[number] = step.at + pause_s


def _failed(step: Step, xs: ExperimentState, number: int, failure: _Failure) -> None:
    step.put_trial(xs, number, fingerprint=failure.fingerprint)
    _finish(step, xs, number, PendingEnd(status=TrialStatus.FAILED, reason=failure.reason, message=failure.message))


def _finish(step: Step, xs: ExperimentState, number: int, end: PendingEnd) -> None:
    """End the trial now, or once its last report is assessed where the experiment is deterministic."""
    step.put_trial(xs, number, pending_end=replace(end, at=_ended_at(step, xs, number)))
    finish_if_judged(step, xs, number)


def finish_if_judged(step: Step, xs: ExperimentState, number: int) -> None:
    trial = xs.trials.get(number)
    if trial is None or trial.pending_end is None or trial.status.is_final:
        return
    if not is_judged(xs, trial):
        return
    end = trial.pending_end
    why = Why(reason=end.reason, message=end.message)
    if end.status is TrialStatus.PAUSED:
        rest(step, xs, number, why)
    else:
        end_trial(step, xs, number, end.status, why)


def is_judged(xs: ExperimentState, trial: Trial) -> bool:
    """Whether every report of the trial is assessed; asked of deterministic experiments alone, which wait for it."""
    experiment = xs.experiment
    if not experiment.spec.deterministic or xs.judging_queue is None:
        return True
    cursor = experiment.tuner_cursor if xs.judging_queue is Queue.TUNER else experiment.assessor_cursor
    return trial.reports_line <= cursor


def stop_judged_trial(step: Step, xs: ExperimentState, item: MetricsReported, advice: StopAdvised) -> Why:
    """Record where the assessor stopped the trial; deterministic: what came after that report is not part of it."""
    why = Why(reason=TrialReason.STOPPED_BY_ASSESSOR, message=advice.message)
    index = item.sequences.index(advice.sequence)
    report = item.reports[index]
    fields = {"stopped_at_line": item.line, "stopped_at_sequence": advice.sequence}
    if xs.experiment.spec.deterministic:
        last = {"last_step": report.step, "last_value": report.value, "last_metrics": item.values[index]}
        # The best of what is left is not known any more, and nothing asks for it.
        step.put_trial(xs, item.number, final={}, best_value=None, **fields, **last)
        step.changes.metric_cuts.append(
            MetricsCut(experiment_id=xs.id, number=item.number, line=item.line, sequence=advice.sequence)
        )
    else:
        step.put_trial(xs, item.number, **fields)
    step.journal(xs, LineKind.STOP_ADVISED, {"number": item.number, "step": report.step, "message": advice.message})
    return why


def end_trial(step: Step, xs: ExperimentState, number: int, status: TrialStatus, why: Why) -> None:
    """The trial ends, once and for all. Told at once, or in its turn where the experiment is deterministic."""
    trial, spec = xs.trials[number], xs.experiment.spec
    value, index = None, trial.reported_index
    if status is TrialStatus.EARLY_STOPPED:
        value = trial.last_value
    elif status is TrialStatus.SUCCEEDED:
        value, index = _final_value(trial, spec.trial.final, spec.objective.metric)
    fingerprint = trial.fingerprint if status is TrialStatus.FAILED else ""
    fields: dict[str, Any] = {
        "value": value,
        "ended_at": _ended_at(step, xs, number),
        "pending_end": None,
        "fingerprint": fingerprint,
        "rested_line": None,
    }
    if value is not None:
        fields["reported_index"] = index
    step.move_trial(xs, number, status, why, **fields)
    if status is TrialStatus.SUCCEEDED and value is not None:
        _mind_best(step, xs, number, value)
    if not spec.deterministic and not xs.is_choosing_for(number):
        tell(step, xs, number)


def _ended_at(step: Step, xs: ExperimentState, number: int) -> float:
    """When the last attempt of the trial ended, where that is why it ends; else now. Not before it began."""
    trial = xs.trials[number]
    pending = None if trial.pending_end is None else trial.pending_end.at
    at = step.ended.get((xs.id, number), step.at) if pending is None else pending
    return max(at, trial.created_at if trial.started_at is None else trial.started_at)


def _mind_best(step: Step, xs: ExperimentState, number: int, value: float) -> None:
    experiment = xs.experiment
    # Of equals the lowest number, so that the best does not depend on which of them ended first.
    tied = value == experiment.best_value and number < (experiment.best_number or number)
    if tied or experiment.spec.objective.better(value, experiment.best_value):
        step.put_experiment(xs, best_number=number, best_value=value)


def tell(step: Step, xs: ExperimentState, number: int) -> None:
    """Put the end of the trial into the queues: exactly once in its life."""
    trial = xs.trials[number]
    outcome = TrialOutcome(
        number=number,
        status=trial.status,
        parameters=trial.result_parameters,
        value=trial.value,
        step=trial.last_step,
        source=trial.source,
        further_values=further_values(trial, xs.experiment.spec) if trial.value is not None else (),
        own_failure=trial.failed_itself,
    )
    line = step.journal(xs, LineKind.TRIAL_ENDED, {"outcome": to_plain(outcome)})
    step.put_trial(xs, number, told_line=line)
    experiment = xs.experiment
    step.put_experiment(
        xs,
        tuner_waits=False,
        failures=experiment.failures + (trial.status is TrialStatus.FAILED),
        # One that was added was spared from the start.
        spared=experiment.spared + (not trial.status.eats_budget and not trial.is_added),
    )
    _count_alike(step, xs, trial)
    step.enqueue(xs, LineKind.TRIAL_ENDED, TrialEnded(line=line, outcome=outcome))
    step.let_go(xs, number)


def _count_alike(step: Step, xs: ExperimentState, trial: Trial) -> None:
    """Count how many of the trials told first failed with one error; in the order of telling, whatever ended when."""
    experiment = xs.experiment
    if trial.status is TrialStatus.CANCELED:
        return  # given up by a person: neither a failure nor a sign that trials can do better
    if trial.fingerprint and experiment.first_error in {"", trial.fingerprint}:
        step.put_experiment(xs, first_error=trial.fingerprint, same_errors=experiment.same_errors + 1)
    else:
        step.put_experiment(xs, first_error=NOT_ALIKE, same_errors=0)


def _has_result(xs: ExperimentState, trial: Trial) -> bool:
    spec = xs.experiment.spec
    return _final_value(trial, spec.trial.final, spec.objective.metric)[0] is not None


def _final_value(trial: Trial, source: FinalFrom, metric: str) -> tuple[float | None, int]:
    """The objective's final value, and the index of the parameters that it was reported with.

    From the intermediate values where the experiment says so.
    """
    reported, last = (trial.final.get(metric), trial.final_index), (trial.last_value, trial.reported_index)
    intermediate: dict[FinalFrom, tuple[tuple[float | None, int | None], ...]] = {
        FinalFrom.REPORTED: (),
        FinalFrom.LAST: (last,),
        FinalFrom.BEST: ((trial.best_value, trial.best_index), last),  # NaN is no best value, and yet an outcome
    }
    for value, index in (*intermediate[source], reported):
        if value is not None:
            return value, trial.reported_index if index is None else index
    return None, trial.reported_index
