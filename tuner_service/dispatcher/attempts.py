"""The end of an attempt, whoever tells of it."""

from __future__ import annotations

from dataclasses import replace

from trials.wire.limits import NOT_KEPT
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher import devices, endings, exits
from tuner_service.dispatcher.commands import BlobReceived
from tuner_service.dispatcher.limits import FRESH_BLOBS_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.step import Step, TrialStep
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import AttemptStatus, PartState

LOST = ExitRecord(cause=ExitCause.ATTEMPT_LOST)


def lose(ts: TrialStep, *, why: str = "") -> None:
    """Nobody holds its live attempt any more; the trial goes on in a new one."""
    attempt_over(ts, AttemptStatus.LOST, replace(LOST, tail=why))


def attempt_over(
    ts: TrialStep, status: AttemptStatus, record: ExitRecord, *, known: exits.Meaning | None = None
) -> None:
    """``known``: what its end means, where ``record`` does not say it."""
    step, attempt = ts.step, ts.live
    lost = devices.loss(step, attempt)
    devices.note_end(ts, record)
    life = exits.life_of(attempt, record, at=step.at)
    parts = tuple(replace(part, state=PartState.ENDED) for part in attempt.parts)
    ended = replace(attempt, exit=record, started_at=life.started_at, ended_at=life.ended_at, parts=parts)
    ts.move_attempt(status, ended)
    step.ended[ts.xs.id, ts.number] = life.ended_at
    ts.put(replace(ts.trial, running_s=ts.trial.running_s + life.ran_s, running_since=None))
    payload = {
        "attempt": attempt.key.attempt,
        "cause": record.cause.value,
        "code": record.code,
        "signal": record.signal,
    }
    ts.journal(LineKind.ATTEMPT_ENDED, payload)
    endings.attempt_ended(ts, attempt, record, lost=lost, known=known)


def blob_received(step: Step, command: BlobReceived) -> None:
    """Bytes a checkpoint record will name. They stay, whatever is dropped until then.

    ConflictError where their agent has no attempt whose records could name them: they would only fill the disk.
    """
    if command.agent_id is not None and not _may_name(step, command.agent_id):
        raise ConflictError(
            f"agent {command.agent_id!r} has no attempt that goes on, whose checkpoint this could be; {NOT_KEPT}"
        )
    step.changes.blobs[command.digest] = command.data
    fresh = step.state.fresh_blobs
    fresh[command.digest] = fresh.pop(command.digest, 0) + 1
    if len(fresh) > FRESH_BLOBS_LIMIT:
        del fresh[next(iter(fresh))]


def _may_name(step: Step, agent_id: str) -> bool:
    """Whether it has a live attempt; or may have one, of an experiment that was set aside."""
    held = (attempt for xs in step.state.experiments.values() for attempt in xs.attempts.values())
    return bool(step.state.set_aside) or any(attempt.is_held_by(agent_id) for attempt in held)
