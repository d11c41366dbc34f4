"""What people ask about experiments that have ended: their metrics out of the database and back, and their removal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tuner_service.archive_ports import MovedRows
from tuner_service.dispatcher.commands import ArchiveMoved, Command, ExperimentDeleted
from tuner_service.domain.archives import UNDER_WAY, ArchivePhase, holds_all
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import ASIDE, Experiment, ExperimentId
from tuner_service.ports import Clock, Queries
from tuner_service.service.archiving import Archivist
from tuner_service.service.digests import digest_view
from tuner_service.service.views import View, moment

REMOVED_AT_ONCE = 5_000  # rows that are removed in the transaction that removes their experiment; of more, before
REPORT_BYTES = 130  # of a report with one metric in a database, its entries in indices included


class Submit(Protocol):
    """As ``Experiments.submit``."""

    async def __call__(self, command: Command, *, then: Callable[[], object] | None = None) -> None: ...


@dataclass(kw_only=True)
class Retention:
    """``submit`` returns when the command is on disk; ``wake`` has the archivist look at what is to be done."""

    queries: Queries
    rows: MovedRows
    clock: Clock
    submit: Submit
    wake: Callable[[], None]

    @classmethod
    def beside(cls, archivist: Archivist, *, submit: Submit) -> Retention:
        """What an archivist is told to do."""
        return cls(
            queries=archivist.queries, rows=archivist.rows, clock=archivist.clock, submit=submit, wake=archivist.wake
        )

    async def archive(self, experiment_id: ExperimentId) -> None:
        await self._begin(experiment_id, ArchivePhase.WRITING)

    async def unarchive(self, experiment_id: ExperimentId) -> None:
        await self._begin(experiment_id, ArchivePhase.RESTORING)

    async def delete(self, experiment_id: ExperimentId, *, is_large: bool) -> None:
        """With ``is_large``: it is gone soon, and nothing else can be done with it from here on."""
        if is_large:
            await self._begin(experiment_id, ArchivePhase.REMOVING)
        else:
            await self.submit(ExperimentDeleted(at=self.clock.now(), experiment_id=experiment_id))

    def is_large(self, experiment_id: ExperimentId) -> bool:
        """Whether its removal takes more than one step, or is for who moves its metrics to do in turn. Blocks.

        One that was set aside need not have ended.
        """
        found = self.queries.experiment(experiment_id)
        if found is None or not (found.status.has_ended or found.reason in ASIDE):
            return False
        is_moved = found.archive is not None and found.archive.phase in UNDER_WAY
        return is_moved or self.rows.has_more_than(experiment_id, REMOVED_AT_ONCE)

    def due(self, *, older_than_s: float) -> list[Experiment]:
        """As ``due``. Blocks."""
        return due(self.queries, before=self.clock.now() - older_than_s)

    async def _begin(self, experiment_id: ExperimentId, phase: ArchivePhase) -> None:
        moved = ArchiveMoved(at=self.clock.now(), experiment_id=experiment_id, phase=phase)
        await self.submit(moved, then=self.wake)


def due(queries: Queries, *, before: float) -> list[Experiment]:
    """Those that ended before that time, oldest first. Whoever gave one a tag wants to keep it.

    One that was set aside is left as it is: a repair, or another version, wants to find it.
    """
    ended = [e for e in queries.experiments() if e.status.has_ended and not e.has_ended_and_is_aside]
    found = [e for e in ended if not e.tags and not _is_removed(e)]
    return sorted((e for e in found if e.ended_at is not None and e.ended_at < before), key=lambda e: e.ended_at or 0.0)


def due_view(experiment: Experiment, rows: MovedRows) -> View:
    """``bytes`` is about what its removal gives back."""
    held = rows.held(experiment.id)
    archived = 0 if experiment.archive is None else experiment.archive.size
    in_database = held.reports * REPORT_BYTES if holds_all(experiment.archive) else 0
    return {
        "id": experiment.id,
        "name": experiment.spec.name,
        "status": experiment.status.value,
        "ended_at": moment(experiment.ended_at),
        "trials": sum(experiment.counts.values()),
        "reports": held.reports,
        "bytes": in_database + archived + held.checkpoint_bytes,
    }


def require_metrics(experiment: Experiment) -> None:
    """ConflictError that says where they are."""
    archive: Any = experiment.archive
    if holds_all(archive) or archive.phase in {ArchivePhase.WRITING, ArchivePhase.REMOVING}:
        return
    raise ConflictError(
        f"the metrics of experiment {experiment.id} are archived, as asset {digest_view(archive.asset)}: "
        f"`tuner unarchive {experiment.id}` puts them back, `tuner asset get sha256:{archive.asset[:16]} FOLDER` "
        "fetches the parquet file",
        ("unarchive",),
    )


def _is_removed(experiment: Experiment) -> bool:
    return experiment.archive is not None and experiment.archive.phase is ArchivePhase.REMOVING
