"""How trials come to their end, and how their end is told.

An attempt that ended may lead to a new attempt or to the end of its trial. In a deterministic experiment an end waits
until every earlier report of the trial is assessed (a stop wins over whatever came after it), and ends are told in the
order of trial numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trials.wire.plain import to_plain
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher import exits
from tuner_service.dispatcher.changes import MetricsCut
from tuner_service.dispatcher.items import MetricsReported, Queue, StopAdvised, TrialEnded, TrialRested
from tuner_service.dispatcher.limits import (
    DEATHS_WITHOUT_PROGRESS_LIMIT,
    NOT_READY_LIMIT,
    RETRY_PAUSE_LIMIT_S,
    RETRY_PAUSE_S,
)
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentSpec, ExperimentStatus, FinalFrom
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


def attempt_ended(
    ts: TrialStep, ended: Attempt, record: ExitRecord, *, lost: str = "", known: exits.Meaning | None = None
) -> None:
    """The live attempt of the trial is gone, and ``record`` says how: decide what becomes of the trial.

    ``lost``: which of its devices cannot be used any more. Then its end, unless all went well, is not its own doing.
    ``known``: what its end means, where that does not follow from the record.
    """
    trial = ts.trial
    meaning = known or _meaning(ts, ended, record)
    if lost and not isinstance(meaning, exits.Ended):
        meaning = exits.Interrupted(reason=TrialReason.DEVICE_LOST, message=lost)
    if record.cause is ExitCause.ASSETS_MISSING:
        _pause_for_assets(ts, record)
    if trial.status is TrialStatus.STOPPING and trial.reason is TrialReason.RUNG_REACHED:
        _left_at_rung(ts, ended, record)
        return
    if trial.status is TrialStatus.STOPPING and trial.reason not in GOES_ON:
        target = STOP_TARGETS[trial.reason]
        if target is not TrialStatus.PAUSED:
            end_trial(ts, target, Why(reason=trial.reason, message=trial.message))
            return
        if not isinstance(meaning, exits.Ended):
            ts.move(TrialStatus.PAUSED, Why(reason=TrialReason.EXPERIMENT_STOPPED, message=trial.message))
            return
    if trial.status is TrialStatus.STOPPING and not isinstance(meaning, exits.Ended):
        if trial.reason is TrialReason.PREEMPTED:  # it made room: no death of its own
            _go_on(ts, Why(reason=trial.reason, message=trial.message))
            return
        if trial.reason is TrialReason.DEVICE_LOST:
            meaning = exits.Interrupted(reason=trial.reason, message=trial.message)
        else:
            meaning = exits.Died(reason=TrialReason.HEARTBEAT_MISSED, message=trial.message, fingerprint="heartbeat")
    match meaning:
        case exits.Ended():
            _ran_to_its_end(ts, ended)
        case exits.Died():
            _died(ts, meaning)
        case _:
            _interrupted(ts, meaning)


def _meaning(ts: TrialStep, ended: Attempt, record: ExitRecord) -> exits.Meaning:
    has_result = ts.spec.objective.metric in ts.trial.final
    return exits.meaning(record, was_told=ended.half_way is not None, has_result=has_result)


# ── rest ────────────────────────────────────────────────────────────────────────────────────────
def _left_at_rung(ts: TrialStep, ended: Attempt, record: ExitRecord) -> None:
    """However the attempt ended, the trial did what was decided; unless it was done altogether.

    Deterministic: a fork of it may not depend on what happened just then. So it comes to its rung once more where it
    was killed before it had saved what it would have rested with, or before it was told to rest and so might have
    ended there; or where the advisor's word came while it ran on.
    """
    trial, meaning = ts.trial, _meaning(ts, ended, record)
    if isinstance(meaning, exits.Ended) and _has_result(ts):
        _ran_to_its_end(ts, ended)
        return
    was_killed = isinstance(meaning, exits.Interrupted) and record.cause not in {ExitCause.STOPPED, ExitCause.EXITED}
    deaths = trial.deaths_without_progress + was_killed
    may_differ = ts.spec.deterministic and (was_killed or trial.rungs.was_late)
    if may_differ and may_end_at_rung(trial, ended) and trial.rungs.rung_step is not None:
        forget_beyond(ts, trial.rungs.rung_step - 1)
    if may_differ and deaths < DEATHS_WITHOUT_PROGRESS_LIMIT and not has_saved_at_rung(ts):
        ts.put(replace(trial, deaths_without_progress=deaths))
        come_again(ts)
    else:
        rest_later(ts)


def may_end_at_rung(trial: Trial, attempt: Attempt) -> bool:
    """Deterministic: whether its script may end by itself where it is to rest, not having been told of that."""
    return not trial.rungs.was_late and attempt.half_way is None


def forget_beyond(ts: TrialStep, at_step: int) -> None:
    kept = ts.checkpoints
    for beyond in [c for c in kept if c.step > at_step]:
        kept.remove(beyond)
        ts.step.changes.dropped_checkpoints.append(beyond)


def has_saved_at_rung(ts: TrialStep) -> bool:
    rung = ts.trial.rungs.rung_step
    return any(checkpoint.step == rung for checkpoint in ts.checkpoints)


def come_again(ts: TrialStep) -> None:
    """The trial runs to its rung once more, from its newest checkpoint before that; it has no attempt."""
    trial = ts.move_rungs(ts.trial.rungs.again())
    trial = ts.put(replace(trial, pending_end=None))
    if trial.status in {TrialStatus.RUNNING, TrialStatus.STOPPING}:
        where = f"at step {trial.rungs.rung_step}, where it is to rest"
        message = f"ended without a checkpoint {where}; runs to there once more"
        _go_on(ts, Why(reason=TrialReason.PREEMPTED, message=message))


def rest_later(ts: TrialStep) -> None:
    """The trial rests now, or once what it reported is judged where the experiment is deterministic."""
    end = PendingEnd(status=TrialStatus.PAUSED, reason=TrialReason.RUNG_REACHED, message=ts.trial.message)
    _finish(ts, end)


def rest(ts: TrialStep, why: Why[TrialReason]) -> None:
    ts.move(TrialStatus.PAUSED, why, replace(ts.trial, pending_end=None))
    tell_rest_now(ts)


def tell_rest_now(ts: TrialStep) -> None:
    """Deterministic: in its turn."""
    if not ts.spec.deterministic:
        tell_rest(ts)


def tell_rest(ts: TrialStep) -> None:
    """Tell the advisor that the trial waits to be promoted."""
    step, xs, at_step = ts.step, ts.xs, ts.trial.rungs.rung_step or 0
    line = ts.journal(LineKind.TRIAL_RESTED, {"step": at_step})
    ts.move_rungs(ts.trial.rungs.told(line))
    step.put_experiment(xs, replace(xs.experiment, tuner_waits=False))
    step.enqueue(xs, LineKind.TRIAL_RESTED, TrialRested(line=line, number=ts.number, step=at_step))


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def _ran_to_its_end(ts: TrialStep, ended: Attempt) -> None:
    trial, spec = ts.trial, ts.spec
    missing = next(iter(missing_results(trial, spec)), None)
    if missing is None or spec.objective.is_optional:
        reason = TrialReason.FINAL_METRIC if missing is None else TrialReason.NONE
        _finish(ts, PendingEnd(status=TrialStatus.SUCCEEDED, reason=reason, message=""))
        return
    seen = ", ".join(trial.metric_names) or "none"
    message = (
        f"exited with code 0 and reported no final {missing!r} (metrics seen: {seen}); call "
        "report_final, or set trial.final to last or best"
    )
    if ended.message:  # nearly always the reason
        message += f"; {ended.message}"
    _failed(ts, exits.Died(reason=TrialReason.NO_FINAL_METRIC, message=message, fingerprint="no final metric"))


def missing_results(trial: Trial, spec: ExperimentSpec, final: Mapping[str, float] | None = None) -> list[str]:
    """The objectives' metrics of which the trial would have no value if it ended now, with these ``final`` ones."""
    if final:
        trial = replace(trial, final={**trial.final, **final})
    values = {spec.objective.metric: _final_value(trial, spec)[0]}
    for objective in spec.objective.further:
        values[objective.metric] = further_value(trial, objective, spec.trial.final)
    return [metric for metric, value in values.items() if value is None]


def _died(ts: TrialStep, failure: exits.Died) -> None:
    charged = ts.trial.charged + 1
    ts.put(replace(ts.trial, charged=charged))
    if charged < ts.spec.trial.max_attempts:
        why = Why(reason=failure.reason, message=f"{failure.message}; tried again")
        _go_on(ts, why, pause_s=retry_pause(charged))
    else:
        _failed(ts, failure)


def _pause_for_assets(ts: TrialStep, record: ExitRecord) -> None:
    """Every launch to come would end the same way: a person brings the store back, and nothing is lost meanwhile."""
    if ts.xs.experiment.status is ExperimentStatus.RUNNING:
        message = f"{exits.last_line(record.tail)}; once it is there again: tuner resume {ts.xs.id}"
        why = Why(reason=ExperimentReason.ASSETS_MISSING, message=message)
        ts.step.move_experiment(ts.xs, ExperimentStatus.PAUSED, why)


def _interrupted(ts: TrialStep, meaning: exits.Interrupted) -> None:
    if meaning.reason is TrialReason.ASSETS_MISSING:  # no death of its own
        _go_on(ts, Why(reason=meaning.reason, message=meaning.message))
        return
    if meaning.reason is TrialReason.NODES_NOT_READY:
        _could_not_begin(ts, meaning)
        return
    deaths = ts.trial.deaths_without_progress + 1
    ts.put(replace(ts.trial, deaths_without_progress=deaths))
    if deaths < DEATHS_WITHOUT_PROGRESS_LIMIT:
        _go_on(ts, Why(reason=meaning.reason, message=meaning.message), pause_s=retry_pause(deaths))
    else:
        message = f"{meaning.message}, for the {deaths}th time without a new report"
        _failed(ts, exits.Died(reason=TrialReason.CRASH_LOOP, message=message, fingerprint="crash loop"))


def _could_not_begin(ts: TrialStep, meaning: exits.Interrupted) -> None:
    """Nothing of the trial ran: it is tried again, ever less often, and in the end a person is asked."""
    trial, xs = ts.trial, ts.xs
    times = trial.deaths_without_progress + 1
    if times < NOT_READY_LIMIT:
        ts.put(replace(trial, deaths_without_progress=times))
        _go_on(ts, Why(reason=meaning.reason, message=meaning.message), pause_s=retry_pause(times))
        return
    ts.put(replace(trial, deaths_without_progress=0))
    _go_on(ts, Why(reason=meaning.reason, message=meaning.message))
    if xs.experiment.status is ExperimentStatus.RUNNING:
        what = f"trial {ts.number} could not begin on its nodes, {times} times in a row: {meaning.message}"
        why = Why(reason=ExperimentReason.NODES_NOT_READY, message=f"{what}; once they are well: tuner resume {xs.id}")
        ts.step.move_experiment(xs, ExperimentStatus.PAUSED, why)


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


def _go_on(ts: TrialStep, why: Why[TrialReason], *, pause_s: float = 0.0) -> None:
    """The same trial in a new attempt, as soon as there is room and the pause is over."""
    if pause_s:
        why = replace(why, message=f"{why.message}; waits {pause_s:g} s before its next attempt")
    ts.move(TrialStatus.WAITING, why)
    if pause_s:
        ts.xs.held_until[ts.number] = ts.step.at + pause_s


def _failed(ts: TrialStep, failure: exits.Died) -> None:
    ts.put(replace(ts.trial, fingerprint=failure.fingerprint))
    _finish(ts, PendingEnd(status=TrialStatus.FAILED, reason=failure.reason, message=failure.message))


def _finish(ts: TrialStep, end: PendingEnd) -> None:
    """End the trial now, or once its last report is assessed where the experiment is deterministic."""
    ts.put(replace(ts.trial, pending_end=replace(end, at=_ended_at(ts))))
    finish_if_judged(ts)


def finish_if_judged(ts: TrialStep) -> None:
    trial = ts.trial
    if trial.pending_end is None or trial.status.is_final or not is_judged(ts.xs, trial):
        return
    end = trial.pending_end
    why = Why(reason=end.reason, message=end.message)
    if end.status is TrialStatus.PAUSED:
        rest(ts, why)
    else:
        end_trial(ts, end.status, why)


def is_judged(xs: ExperimentState, trial: Trial) -> bool:
    """Whether every report of the trial is assessed; asked of deterministic experiments alone, which wait for it."""
    experiment = xs.experiment
    if not experiment.spec.deterministic or xs.judging_queue is None:
        return True
    cursor = experiment.tuner_cursor if xs.judging_queue is Queue.TUNER else experiment.assessor_cursor
    return trial.reports_line <= cursor


def stop_judged_trial(ts: TrialStep, item: MetricsReported, advice: StopAdvised) -> Why[TrialReason]:
    """Record where the assessor stopped the trial; deterministic: what came after that report is not part of it."""
    report = item.reports[item.sequences.index(advice.sequence)]
    trial = replace(ts.trial, stopped_at_line=item.line, stopped_at_sequence=advice.sequence)
    if ts.spec.deterministic:
        trial = cut_after(ts, trial, item, advice.sequence)
    ts.put(trial)
    ts.journal(LineKind.STOP_ADVISED, {"step": report.step, "message": advice.message})
    return Why(reason=TrialReason.STOPPED_BY_ASSESSOR, message=advice.message)


def cut_after(ts: TrialStep, trial: Trial, item: MetricsReported, sequence: int) -> Trial:
    """``trial`` as it was at the report of ``sequence``; its later ones are removed."""
    index = item.sequences.index(sequence)
    report = item.reports[index]
    cut = MetricsCut(experiment_id=ts.xs.id, number=ts.number, line=item.line, sequence=sequence)
    ts.step.changes.metric_cuts.append(cut)
    # The best of what is left is not known any more, and nothing asks for it.
    return replace(
        trial,
        final={},
        best_value=None,
        last_step=report.step,
        last_value=report.value,
        last_metrics=item.values[index],
    )


def end_trial(ts: TrialStep, status: TrialStatus, why: Why[TrialReason]) -> None:
    """The trial ends, once and for all. Told at once, or in its turn where the experiment is deterministic."""
    trial, spec = ts.trial, ts.spec
    value, index = None, trial.reported_index
    if status is TrialStatus.EARLY_STOPPED:
        value = trial.last_value
    elif status is TrialStatus.SUCCEEDED:
        value, index = _final_value(trial, spec)
    ended = replace(
        trial,
        value=value,
        reported_index=trial.reported_index if value is None else index,
        ended_at=_ended_at(ts),
        pending_end=None,
        fingerprint=trial.fingerprint if status is TrialStatus.FAILED else "",
    )
    ts.move(status, why, ended)
    if trial.rests:
        ts.move_rungs(trial.rungs.left())
    if status is TrialStatus.SUCCEEDED and value is not None:
        _mind_best(ts, value)
    if not spec.deterministic and not ts.xs.is_choosing_for(ts.number):
        tell(ts)


def _ended_at(ts: TrialStep) -> float:
    """When the last attempt of the trial ended, where that is why it ends; else now. Not before it began."""
    trial = ts.trial
    pending = None if trial.pending_end is None else trial.pending_end.at
    at = ts.step.ended.get((ts.xs.id, ts.number), ts.step.at) if pending is None else pending
    return max(at, trial.created_at if trial.started_at is None else trial.started_at)


def _mind_best(ts: TrialStep, value: float) -> None:
    experiment, number = ts.xs.experiment, ts.number
    # Of equals the lowest number, so that the best does not depend on which of them ended first.
    tied = value == experiment.best_value and number < (experiment.best_number or number)
    if tied or experiment.spec.objective.better(value, experiment.best_value):
        ts.step.put_experiment(ts.xs, replace(experiment, best_number=number, best_value=value))


def tell(ts: TrialStep) -> None:
    """Put the end of the trial into the queues: exactly once in its life."""
    step, xs, trial = ts.step, ts.xs, ts.trial
    outcome = TrialOutcome(
        number=ts.number,
        status=trial.status,
        parameters=trial.result_parameters,
        value=trial.value,
        step=trial.last_step,
        source=trial.source,
        further_values=further_values(trial, ts.spec) if trial.value is not None else (),
        own_failure=trial.failed_itself,
    )
    line = step.journal(xs, LineKind.TRIAL_ENDED, {"outcome": to_plain(outcome)})
    ts.put(replace(trial, told_line=line))
    experiment = _count_alike(xs.experiment, trial)
    # One that was added was spared from the start.
    spared = not trial.status.eats_budget and not trial.is_added
    experiment = replace(
        experiment,
        tuner_waits=False,
        failures=experiment.failures + (trial.status is TrialStatus.FAILED),
        spared=experiment.spared + spared,
    )
    step.put_experiment(xs, experiment)
    step.enqueue(xs, LineKind.TRIAL_ENDED, TrialEnded(line=line, outcome=outcome))
    ts.let_go()


def _count_alike(experiment: Experiment, trial: Trial) -> Experiment:
    """Count how many of the trials told first failed with one error; in the order of telling, whatever ended when."""
    if trial.status is TrialStatus.CANCELED:
        return experiment  # given up by a person: neither a failure nor a sign that trials can do better
    if trial.fingerprint and experiment.first_error in {"", trial.fingerprint}:
        return replace(experiment, first_error=trial.fingerprint, same_errors=experiment.same_errors + 1)
    return replace(experiment, first_error=NOT_ALIKE, same_errors=0)


def _has_result(ts: TrialStep) -> bool:
    return _final_value(ts.trial, ts.spec)[0] is not None


def _final_value(trial: Trial, spec: ExperimentSpec) -> tuple[float | None, int]:
    """The objective's final value, and the index of the parameters that it was reported with.

    From the intermediate values where the experiment says so.
    """
    reported = trial.final.get(spec.objective.metric), trial.final_index
    last = trial.last_value, trial.reported_index
    intermediate: dict[FinalFrom, tuple[tuple[float | None, int | None], ...]] = {
        FinalFrom.REPORTED: (),
        FinalFrom.LAST: (last,),
        FinalFrom.BEST: ((trial.best_value, trial.best_index), last),  # NaN is no best value, and yet an outcome
    }
    for value, index in (*intermediate[spec.trial.final], reported):
        if value is not None:
            return value, trial.reported_index if index is None else index
    return None, trial.reported_index
