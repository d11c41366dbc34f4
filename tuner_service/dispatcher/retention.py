"""Which checkpoints of a trial are kept: the newest, the best, and those that others may still want."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trials.wire.limits import CHECKPOINT_INLINE_BYTES
from trials.wire.messages import DeleteCheckpoint
from trials.wire.records import CheckpointDamagedRecord, CheckpointRecord
from tuner_service.dispatcher import rungs
from tuner_service.dispatcher.step import TrialStep
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.domain.trial import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint whose bytes are in place; ``location``: where in the checkpoint store, of a large one."""

    record: CheckpointRecord
    sequence: int
    location: str | None


def take(ts: TrialStep, saved: Saved) -> None:
    """Make its row, and drop what the experiment does not keep."""
    attempt, record, location = ts.live, saved.record, saved.location
    reported = record.value  # of scripts whose metrics are read from their output, only the service knows it
    checkpoint = Checkpoint(
        experiment_id=ts.xs.id,
        number=ts.number,
        attempt=attempt.key.attempt,
        nonce=attempt.nonce,
        sequence=saved.sequence,
        step=record.step,
        name=record.name,
        digest=record.digest,
        size=record.size,
        inline=record.size <= CHECKPOINT_INLINE_BYTES and location is None,
        value=ts.trial.last_value if reported is None else reported,
        at=record.at,
        agent_id=attempt.agent_id,
        location=location,
        stall_s=record.stall_s,
        write_s=record.write_s,
    )
    ts.xs.checkpoints.setdefault(ts.number, []).append(checkpoint)
    ts.step.changes.checkpoints.append(checkpoint)
    _named(ts, record.digest)
    for dropped in _unwanted(ts):
        _drop(ts, dropped)


def _named(ts: TrialStep, digest: str) -> None:
    """A row names these bytes now. Another record may still be on its way that names the same."""
    fresh = ts.step.state.fresh_blobs
    if fresh.get(digest, 0) > 1:
        fresh[digest] -= 1
    else:
        fresh.pop(digest, None)


def _unwanted(ts: TrialStep) -> list[Checkpoint]:
    """Beyond the newest and the best, as the experiment says, and the one a fork may begin with."""
    kept, template = ts.checkpoints, ts.spec.trial
    wanted = {id(c) for c in kept[-max(1, template.keep_last) :]}
    wanted |= {id(c) for c in _best(ts.spec, kept)[: template.keep_best]}
    wanted |= {id(c) for c in rungs.for_forks(ts)}
    return [c for c in kept if id(c) not in wanted]


def _drop(ts: TrialStep, dropped: Checkpoint) -> None:
    """Forget the row, and order its bytes away where nobody else wants them.

    The file is on the node of the attempt that saved it. Where that one is not connected, the node of the live attempt
    is told, which can at least reach the checkpoint store.
    """
    step = ts.step
    ts.checkpoints.remove(dropped)
    step.changes.dropped_checkpoints.append(dropped)
    if rungs.is_inherited(ts.xs, dropped) or any(_is_of_same_file(dropped, kept) for kept in ts.checkpoints):
        return
    owner = dropped.agent_id if dropped.agent_id in step.state.agents else ts.live.agent_id
    order = DeleteCheckpoint(nonce=dropped.nonce, name=dropped.name, location=dropped.location, saved_at=dropped.at)
    step.tell(owner, order)


def _is_of_same_file(one: Checkpoint, other: Checkpoint) -> bool:
    """As where a script saves a step twice: the name of a file says what is in it."""
    return (one.nonce, one.name) == (other.nonce, other.name)


def damaged(ts: TrialStep, record: CheckpointDamagedRecord) -> None:
    """The row says so from now on, and no attempt is given it again. Repeating it is harmless."""
    kept = ts.checkpoints
    for checkpoint in [c for c in kept if c.digest == record.digest]:
        kept.remove(checkpoint)
        ts.step.changes.checkpoints.append(replace(checkpoint, damaged=True))


def _best(spec: ExperimentSpec, kept: list[Checkpoint]) -> list[Checkpoint]:
    better = spec.objective.better
    ordered: list[Checkpoint] = []
    for checkpoint in kept:
        if checkpoint.value is not None:
            place = next((i for i, c in enumerate(ordered) if better(checkpoint.value, c.value)), len(ordered))
            ordered.insert(place, checkpoint)
    return ordered
