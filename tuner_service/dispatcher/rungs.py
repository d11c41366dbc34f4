"""What an advisor decides about trials: which one runs next and how far, where it rests, goes on, forks, or ends.

A decision lets one trial run to a step, its *rung*, where it rests: it saves a checkpoint, leaves its place to another,
and waits to be promoted. A fork is a new trial that begins with a checkpoint of another one. Where the experiment is
deterministic, nothing that a trial reports or saves beyond its rung is part of it.
"""

from __future__ import annotations

from dataclasses import replace

from trials.wire.messages import DeleteCheckpoint
from trials.wire.records import CheckpointRecord, MetricRecord
from tuner_service.dispatcher import endings, launching
from tuner_service.dispatcher.changes import StoredDecision
from tuner_service.dispatcher.commands import Record
from tuner_service.dispatcher.effects import WarnNoCheckpoint
from tuner_service.dispatcher.items import MetricsReported, PauseAdvised, SuggestionRequested
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.trial import Checkpoint, Decision, DecisionKind, Trial, TrialReason, TrialStatus

FORKED_CHECKPOINTS = 2  # that a fork is given: one to begin with, and the one before should that be damaged

# Asked to stop for one of these, a trial that reaches its rung rests instead.
_MAKING_ROOM = frozenset(
    {
        TrialReason.EXPERIMENT_STOPPED,
        TrialReason.HEARTBEAT_MISSED,
        TrialReason.DEVICE_LOST,
        TrialReason.RUNG_REACHED,
    }
)


# ── decisions ───────────────────────────────────────────────────────────────────────────────────
def decided(step: Step, xs: ExperimentState, item: SuggestionRequested, decision: Decision) -> bool:
    """Carry out what the advisor answered. False, and nothing is done, where the trial it is about is gone."""
    if not _is_possible(xs, decision):
        if item.number:
            step.give_back_number(xs, item.number)
        return False
    step.changes.decisions.append(
        StoredDecision(
            experiment_id=xs.id,
            line=item.line,
            kind=decision.kind,
            number=decision.number,
            until_step=decision.until_step,
            forked_from=decision.forked_from,
            dropped=decision.dropped,
        )
    )
    if decision.kind is DecisionKind.PROMOTE:
        _promote(step, xs, item, decision)
    else:
        _begin(step, xs, item, decision)
    for number in decision.dropped:
        give_up(step, xs, number, "nothing better came of it than of others: given up where it rested")
    return True


def _is_possible(xs: ExperimentState, decision: Decision) -> bool:
    match decision.kind:
        case DecisionKind.START:
            return True
        case DecisionKind.PROMOTE:
            return decision.number in xs.trials and xs.trials[decision.number].rests
        case _:
            source = xs.trials.get(decision.forked_from or 0)
            return source is not None and source.rungs.rested_step is not None


def _promote(step: Step, xs: ExperimentState, item: SuggestionRequested, decision: Decision) -> None:
    ts = step.trial(xs, decision.number)
    if item.number:
        step.give_back_number(xs, item.number)
    ts.journal(LineKind.TRIAL_PROMOTED, {"until_step": decision.until_step})
    message = f"promoted, to run {_goal(decision)}"
    if not ts.checkpoints:
        message += "; it saved no checkpoint, so it begins anew"
        _warn(ts)
    ts.move_rungs(ts.trial.rungs.promoted(until_step=decision.until_step, line=item.line))
    ts.move(TrialStatus.WAITING, Why(reason=TrialReason.PROMOTED, message=message))


def _begin(step: Step, xs: ExperimentState, item: SuggestionRequested, decision: Decision) -> None:
    """A new trial; a fork has the checkpoints of its source, which it may go on from like its own."""
    number = item.number
    source = None if decision.forked_from is None else step.trial(xs, decision.forked_from)
    inherited: list[Checkpoint] = []
    if source is not None:
        of_rung = _upto(source, source.trial.rungs.rested_step)
        inherited = [
            replace(checkpoint, number=number, attempt=0, sequence=place, at=step.at)
            for place, checkpoint in enumerate(of_rung[-FORKED_CHECKPOINTS:], start=1)
        ]
    forked_step = inherited[-1].step if inherited else None
    step.add_trial(
        xs,
        Trial(
            experiment_id=xs.id,
            number=number,
            status=TrialStatus.WAITING,
            parameters=decision.parameters or {},
            reason=TrialReason.SUGGESTED if source is None else TrialReason.FORKED,
            message="" if source is None else _fork_message(source.number, forked_step),
            decided_line=item.line,
            rungs=Rungs(
                until_step=decision.until_step,
                segment_line=item.line,
                forked_from=decision.forked_from,
                forked_step=forked_step,
            ),
            created_at=step.at,
        ),
    )
    if source is None:
        return
    step.journal(xs, LineKind.TRIAL_FORKED, {"number": number, "from": source.number, "step": forked_step})
    if inherited:
        xs.checkpoints[number] = inherited
        step.changes.checkpoints.extend(inherited)
    else:
        _warn(source)


def _goal(decision: Decision) -> str:
    return "to its end" if decision.until_step is None else f"to step {decision.until_step}"


def _fork_message(source: int, forked_step: int | None) -> str:
    if forked_step is None:
        return f"a fork of trial {source}, which saved no checkpoint, so that it begins anew"
    return f"goes on from the checkpoint of trial {source} at step {forked_step}"


def _warn(ts: TrialStep) -> None:
    if not ts.xs.warned_of_no_checkpoint:
        ts.xs.warned_of_no_checkpoint = True
        ts.step.do(WarnNoCheckpoint(experiment_id=ts.xs.id, number=ts.number))


def give_up(step: Step, xs: ExperimentState, number: int, message: str) -> None:
    """End a trial that rests; one that does not is left alone. Told at once, as it is decided at once."""
    trial = xs.trials.get(number)
    if trial is None or not trial.rests:
        return
    ts = step.trial(xs, number)
    endings.end_trial(ts, TrialStatus.EARLY_STOPPED, Why(reason=TrialReason.NOT_PROMOTED, message=message))
    if ts.spec.deterministic:
        endings.tell(ts)


def give_up_all(step: Step, xs: ExperimentState) -> None:
    """The experiment ends: what rests is not promoted any more."""
    for number in sorted(xs.trials):
        give_up(step, xs, number, "it was not promoted by the end of the experiment")


# ── coming to rest ──────────────────────────────────────────────────────────────────────────────
def is_beyond(ts: TrialStep, record: Record) -> bool:
    """Deterministic: whether a record came after the trial had reached its rung, and is no part of it.

    A final metric is, where the script was not told that it is to rest: then it has ended there.
    """
    trial = ts.trial
    if not trial.rungs.rung_reached:
        return False
    match record:
        case CheckpointRecord():
            return record.step > (trial.rungs.rung_step or 0)
        case MetricRecord(final=True):
            return not endings.may_end_at_rung(trial, ts.live)
        case _:
            return True


def leave_out(ts: TrialStep, record: Record) -> None:
    """Nobody will ask for the file of a checkpoint that is no part of the trial. It is past its end there."""
    if isinstance(record, CheckpointRecord):
        ts.tell(DeleteCheckpoint(nonce=ts.live.nonce, name=record.name, saved_at=record.at))
    if isinstance(record, CheckpointRecord | MetricRecord):
        told(ts)
    if isinstance(record, MetricRecord) and record.final:
        keep_half_way(ts, record)


def told(ts: TrialStep) -> None:
    """The script knows that it is to stop, or has gone on beyond where it was to rest: it comes to no end from here.

    What it reports as final from now on is kept with its attempt and is no result.
    """
    if ts.live.half_way is not None:
        return
    ts.put_attempt(replace(ts.live, half_way={}))
    if ts.spec.deterministic and ts.trial.status is TrialStatus.STOPPING:
        launching.order_wanted_stop(ts)  # which waited for this


def is_at_rung(trial: Trial, record: MetricRecord, metric: str) -> bool:
    """Whether this is the report at which the trial has come to where it was to run."""
    rungs = trial.rungs
    if rungs.until_step is None or rungs.rung_reached or record.final or record.step is None:
        return False
    return record.step >= rungs.until_step and metric in record.values


def reach(ts: TrialStep, at_step: int) -> None:
    """The trial has done what was decided: it is asked to save and leave, unless it is to end for good anyway."""
    trial = ts.move_rungs(ts.trial.rungs.reached(at_step))
    why = Why(reason=TrialReason.RUNG_REACHED, message=f"rests at step {at_step}, until it is promoted")
    match trial.status:
        case TrialStatus.RUNNING:
            ts.move(TrialStatus.STOPPING, why)
        case TrialStatus.WAITING:
            endings.rest(ts, why)
            return
        case _ if trial.reason in _MAKING_ROOM:
            ts.put(replace(trial, reason=why.reason, message=why.message))
        case _:
            return  # it is to end, which wins over a rest
    if ts.attempt is not None:
        launching.order_wanted_stop(ts)
    elif trial.status is TrialStatus.PAUSED:
        endings.tell_rest_now(ts)
    else:
        endings.rest_later(ts)  # its script has come to its end, which is no part of it any more


def pause_judged_trial(ts: TrialStep, item: MetricsReported, advice: PauseAdvised) -> None:
    """The advisor lets the trial rest at a report; deterministic: what came after that is not part of it."""
    at_step = item.reports[item.sequences.index(advice.sequence)].step
    if ts.spec.deterministic:
        ts.put(replace(endings.cut_after(ts, ts.trial, item, advice.sequence), reports_line=item.line))
        ts.xs.seen_steps[ts.number] = ts.xs.seen_steps[ts.number].upto(at_step)
        endings.forget_beyond(ts, at_step)
        ts.move_rungs(ts.trial.rungs.reached(at_step))
        if ts.attempt is None and not endings.has_saved_at_rung(ts):
            endings.come_again(ts)
            return
    reach(ts, at_step)


def keep_half_way(ts: TrialStep, record: MetricRecord) -> None:
    ts.put_attempt(replace(ts.live, half_way={**(ts.live.half_way or {}), **record.values}))


# ── the checkpoint of a rung ────────────────────────────────────────────────────────────────────
def for_forks(ts: TrialStep) -> list[Checkpoint]:
    """Kept while the trial runs on: what it rested with last, or is about to, for forks; and what a fork began with.

    A fork that lost that could never come to where it is once more.
    """
    rungs = ts.trial.rungs
    begun_with = [c for c in ts.checkpoints if c.attempt == 0]
    found = (begun_with, _upto(ts, rungs.rested_step), _upto(ts, rungs.rung_step))
    return [checkpoints[-1] for checkpoints in found if checkpoints]


def _upto(ts: TrialStep, at_step: int | None) -> list[Checkpoint]:
    return [c for c in ts.checkpoints if at_step is not None and c.step <= at_step]


def is_inherited(xs: ExperimentState, checkpoint: Checkpoint) -> bool:
    """Whether the file belongs to another trial, or another trial may still want it."""
    if xs.experiment.spec.advisor is None:
        return False
    others = (c for number, kept in xs.checkpoints.items() if number != checkpoint.number for c in kept)
    return checkpoint.attempt == 0 or any(c.digest == checkpoint.digest for c in others)
