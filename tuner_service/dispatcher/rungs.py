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
from tuner_service.dispatcher.changes import MetricsCut, StoredDecision
from tuner_service.dispatcher.commands import Record
from tuner_service.dispatcher.effects import WarnNoCheckpoint
from tuner_service.dispatcher.items import MetricsReported, PauseAdvised, SuggestionRequested
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.trial import Attempt, Checkpoint, Decision, DecisionKind, Trial, TrialReason, TrialStatus

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
            return source is not None and source.rested_step is not None


def _promote(step: Step, xs: ExperimentState, item: SuggestionRequested, decision: Decision) -> None:
    number = decision.number
    if item.number:
        step.give_back_number(xs, item.number)
    step.journal(xs, LineKind.TRIAL_PROMOTED, {"number": number, "until_step": decision.until_step})
    message = f"promoted, to run {_goal(decision)}"
    if not xs.checkpoints.get(number):
        message += "; it saved no checkpoint, so it begins anew"
        _warn(step, xs, number)
    step.move_trial(
        xs,
        number,
        TrialStatus.WAITING,
        Why(reason=TrialReason.PROMOTED, message=message),
        until_step=decision.until_step,
        segment_line=item.line,
        rung_reached=False,
        rested_line=None,
    )


def _begin(step: Step, xs: ExperimentState, item: SuggestionRequested, decision: Decision) -> None:
    """A new trial; a fork has the checkpoints of its source, which it may go on from like its own."""
    number, source = item.number, decision.forked_from
    inherited: list[Checkpoint] = []
    if source is not None:
        of_rung = _upto(xs, source, xs.trials[source].rested_step)
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
            message="" if source is None else _fork_message(source, forked_step),
            decided_line=item.line,
            segment_line=item.line,
            until_step=decision.until_step,
            forked_from=source,
            forked_step=forked_step,
            created_at=step.at,
        ),
    )
    if source is None:
        return
    step.journal(xs, LineKind.TRIAL_FORKED, {"number": number, "from": source, "step": forked_step})
    if inherited:
        xs.checkpoints[number] = inherited
        step.changes.checkpoints.extend(inherited)
    else:
        _warn(step, xs, source)


def _goal(decision: Decision) -> str:
    return "to its end" if decision.until_step is None else f"to step {decision.until_step}"


def _fork_message(source: int, forked_step: int | None) -> str:
    if forked_step is None:
        return f"a fork of trial {source}, which saved no checkpoint, so that it begins anew"
    return f"goes on from the checkpoint of trial {source} at step {forked_step}"


def _warn(step: Step, xs: ExperimentState, number: int) -> None:
    if not xs.warned_of_no_checkpoint:
        xs.warned_of_no_checkpoint = True
        step.do(WarnNoCheckpoint(experiment_id=xs.id, number=number))


def give_up(step: Step, xs: ExperimentState, number: int, message: str) -> None:
    """End a trial that rests; one that does not is left alone. Told at once, as it is decided at once."""
    trial = xs.trials.get(number)
    if trial is None or not trial.rests:
        return
    endings.end_trial(
        step, xs, number, TrialStatus.EARLY_STOPPED, Why(reason=TrialReason.NOT_PROMOTED, message=message)
    )
    if xs.experiment.spec.deterministic:
        endings.tell(step, xs, number)


def give_up_all(step: Step, xs: ExperimentState) -> None:
    """The experiment ends: what rests is not promoted any more."""
    for number in sorted(xs.trials):
        give_up(step, xs, number, "it was not promoted by the end of the experiment")


# ── coming to rest ──────────────────────────────────────────────────────────────────────────────
def is_beyond(trial: Trial, record: Record, attempt: Attempt) -> bool:
    """Deterministic: whether a record came after the trial had reached its rung, and is no part of it.

    A final metric is, where the script was not told that it is to rest: then it has ended there.
    """
    if not trial.rung_reached:
        return False
    match record:
        case CheckpointRecord():
            return record.step > (trial.rung_step or 0)
        case MetricRecord(final=True):
            return not endings.may_end_at_rung(trial, attempt)
        case _:
            return True


def leave_out(step: Step, xs: ExperimentState, number: int, record: Record) -> None:
    """Nobody will ask for the file of a checkpoint that is no part of the trial. It is past its end there."""
    attempt = xs.attempts[number]
    if isinstance(record, CheckpointRecord):
        step.tell(attempt.agent_id, DeleteCheckpoint(nonce=attempt.nonce, name=record.name))
    if isinstance(record, CheckpointRecord | MetricRecord):
        told(step, xs, number)
    if isinstance(record, MetricRecord) and record.final:
        keep_half_way(step, xs, number, record)


def told(step: Step, xs: ExperimentState, number: int) -> None:
    """The script knows that it is to stop, or has gone on beyond where it was to rest: it comes to no end from here.

    What it reports as final from now on is kept with its attempt and is no result.
    """
    attempt, trial = xs.attempts[number], xs.trials[number]
    if attempt.half_way is not None:
        return
    attempt = step.put_attempt(xs, number, half_way={})
    if xs.experiment.spec.deterministic and trial.status is TrialStatus.STOPPING:
        launching.order_wanted_stop(step, xs, attempt)  # which waited for this


def is_at_rung(trial: Trial, record: MetricRecord, metric: str) -> bool:
    """Whether this is the report at which the trial has come to where it was to run."""
    if trial.until_step is None or trial.rung_reached or record.final or record.step is None:
        return False
    return record.step >= trial.until_step and metric in record.values


def reach(step: Step, xs: ExperimentState, number: int, at_step: int) -> None:
    """The trial has done what was decided: it is asked to save and leave, unless it is to end for good anyway."""
    trial = step.put_trial(xs, number, rung_step=at_step, rung_reached=True)
    why = Why(reason=TrialReason.RUNG_REACHED, message=f"rests at step {at_step}, until it is promoted")
    match trial.status:
        case TrialStatus.RUNNING:
            step.move_trial(xs, number, TrialStatus.STOPPING, why)
        case TrialStatus.WAITING:
            endings.rest(step, xs, number, why)
            return
        case _ if trial.reason in _MAKING_ROOM:
            step.put_trial(xs, number, reason=why.reason, message=why.message)
        case _:
            return  # it is to end, which wins over a rest
    if number in xs.attempts:
        launching.order_wanted_stop(step, xs, xs.attempts[number])
    elif trial.status is TrialStatus.PAUSED:
        endings.tell_rest_now(step, xs, number)
    else:
        endings.rest_later(step, xs, number)  # its script has come to its end, which is no part of it any more


def pause_judged_trial(step: Step, xs: ExperimentState, item: MetricsReported, advice: PauseAdvised) -> None:
    """The advisor lets the trial rest at a report; deterministic: what came after that is not part of it."""
    number, index = item.number, item.sequences.index(advice.sequence)
    report = item.reports[index]
    if xs.experiment.spec.deterministic:
        last = {"last_step": report.step, "last_value": report.value, "last_metrics": item.values[index]}
        step.put_trial(xs, number, final={}, best_value=None, reports_line=item.line, **last)
        step.changes.metric_cuts.append(
            MetricsCut(experiment_id=xs.id, number=number, line=item.line, sequence=advice.sequence)
        )
        xs.seen_steps[number] = {seen for seen in xs.seen_steps[number] if seen <= report.step}
        endings.forget_beyond(step, xs, number, report.step)
        trial = step.put_trial(xs, number, rung_step=report.step, rung_reached=True)
        if number not in xs.attempts and not endings.has_saved_at_rung(xs, trial):
            endings.come_again(step, xs, number)
            return
    reach(step, xs, number, report.step)


def keep_half_way(step: Step, xs: ExperimentState, number: int, record: MetricRecord) -> None:
    step.put_attempt(xs, number, half_way={**(xs.attempts[number].half_way or {}), **record.values})


# ── the checkpoint of a rung ────────────────────────────────────────────────────────────────────
def for_forks(xs: ExperimentState, number: int) -> list[Checkpoint]:
    """Kept while the trial runs on: what it rested with last, or is about to, for forks; and what a fork began with.

    A fork that lost that could never come to where it is once more.
    """
    trial = xs.trials[number]
    begun_with = [c for c in xs.checkpoints.get(number, []) if c.attempt == 0]
    found = (begun_with, *(_upto(xs, number, rung) for rung in (trial.rested_step, trial.rung_step)))
    return [checkpoints[-1] for checkpoints in found if checkpoints]


def _upto(xs: ExperimentState, number: int, at_step: int | None) -> list[Checkpoint]:
    return [c for c in xs.checkpoints.get(number, []) if at_step is not None and c.step <= at_step]


def is_inherited(xs: ExperimentState, checkpoint: Checkpoint) -> bool:
    """Whether the file belongs to another trial, or another trial may still want it."""
    if xs.experiment.spec.advisor is None:
        return False
    others = (c for number, kept in xs.checkpoints.items() if number != checkpoint.number for c in kept)
    return checkpoint.attempt == 0 or any(c.digest == checkpoint.digest for c in others)
