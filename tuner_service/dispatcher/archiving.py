"""Metrics of ended experiments that leave the database, and come back: who may, which rows, and in which order."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from tuner_service.dispatcher.commands import ArchiveMoved, CheckpointsDropped
from tuner_service.dispatcher.items import MetricsReported
from tuner_service.dispatcher.limits import MESSAGE_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.archives import ARCHIVE_TRANSITIONS, UNDER_WAY, Archive, ArchivePhase
from tuner_service.domain.errors import ConflictError

_WORDS = {
    ArchivePhase.WRITING: "archived",
    ArchivePhase.RESTORING: "put back",
    ArchivePhase.REMOVING: "deleted",
}


def move(step: Step, command: ArchiveMoved) -> None:
    """Along the arrows of ARCHIVE_TRANSITIONS, and only while the experiment has ended. ConflictError: not now.

    One that was set aside can be removed whatever it is, and nothing else: its rows are left as they are until then.
    """
    if command.experiment_id in step.state.set_aside and command.phase is ArchivePhase.REMOVING:
        step.changes.removing[command.experiment_id] = Archive(phase=command.phase, upto=0, at=step.at)
        return
    xs = step.find(command.experiment_id)
    before = xs.experiment.archive
    _require_ended(xs, command.phase)
    if command.phase not in ARCHIVE_TRANSITIONS[before.phase if before is not None else None]:
        raise _wrong_phase(xs)
    archive = None if command.phase is None else _moved(step, xs, command.phase, command)
    step.put_experiment(xs, replace(xs.experiment, archive=archive))
    if archive is None and before is not None and before.asset is not None:
        step.changes.unnamed_assets.append((xs.id, before.asset))
    elif command.made is not None:
        step.changes.named_assets.append((xs.id, command.made.asset))
    payload = {"phase": None if command.phase is None else command.phase.value, "message": command.message}
    step.journal(xs, LineKind.ARCHIVE_MOVED, payload)


def drop_checkpoints(step: Step, command: CheckpointsDropped) -> None:
    """With their blobs that nobody else names, before the experiment goes."""
    if command.experiment_id not in step.state.set_aside:
        xs = step.find(command.experiment_id)
        archive = xs.experiment.archive
        if archive is None or archive.phase is not ArchivePhase.REMOVING:
            raise _wrong_phase(xs)
    step.changes.dropped_checkpoints += command.checkpoints


def require_all_metrics(xs: ExperimentState) -> None:
    """ConflictError while some are not in the database: what goes on is told all that was reported."""
    archive = xs.experiment.archive
    if archive is None or archive.phase is ArchivePhase.FAILED:
        return
    if archive.phase is ArchivePhase.REMOVING:
        raise ConflictError(f"experiment {xs.id} is being deleted")
    raise ConflictError(
        f"the metrics of experiment {xs.id} are archived; put them back first: `tuner unarchive {xs.id}`",
        ("unarchive", "delete"),
    )


def require_not_moving(xs: ExperimentState) -> None:
    """ConflictError while its rows leave or come back: one more could come after it is gone, and stay for ever.

    Whoever moves them is told to remove it instead, by ``ArchivePhase.REMOVING``, and does so when it is done.
    """
    archive = xs.experiment.archive
    if archive is not None and archive.phase in UNDER_WAY - {ArchivePhase.REMOVING}:
        raise _wrong_phase(xs)


def _moved(step: Step, xs: ExperimentState, phase: ArchivePhase, command: ArchiveMoved) -> Archive:
    archive = xs.experiment.archive
    if archive is None or phase is ArchivePhase.WRITING:
        archive = Archive(phase=phase, upto=_last_answered(xs), kept=tuple(sorted(xs.trials)))
    if command.made is not None:
        made = command.made
        archive = replace(archive, asset=made.asset, rows=made.rows, digest=made.digest, size=made.size)
    return replace(archive, phase=phase, at=step.at, message=command.message[:MESSAGE_LIMIT])


def _last_answered(xs: ExperimentState) -> int:
    """The last line before all reports that an algorithm has not answered."""
    items = chain.from_iterable(waiting.pending for waiting in xs.queues.values())
    return min((item.line for item in items if isinstance(item, MetricsReported)), default=xs.experiment.next_line) - 1


def _require_ended(xs: ExperimentState, phase: ArchivePhase | None) -> None:
    if not xs.experiment.status.has_ended:
        verb = _WORDS.get(phase or ArchivePhase.WRITING, "archived")
        raise ConflictError(
            f"experiment {xs.id} is {xs.experiment.status.value}; only one that has ended can be {verb}", ("stop",)
        )


def _wrong_phase(xs: ExperimentState) -> ConflictError:
    archive = xs.experiment.archive
    if archive is None or archive.phase is ArchivePhase.FAILED:
        message = f"the metrics of experiment {xs.id} are in the database; nothing of it is archived"
        return ConflictError(message, ("archive", "delete"))
    message = f"the metrics of experiment {xs.id} are in the phase {archive.phase.value!r} of being moved"
    return ConflictError(f"{message}; `tuner show {xs.id}` says how far that is", ("wait",))
