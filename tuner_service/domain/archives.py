"""Where the metrics of an ended experiment are, while they are not, or not only, in the database."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tuner_service.domain.assets import AssetId


class ArchivePhase(StrEnum):
    WRITING = "writing"  # all rows are there still; the file is being made
    CLEARING = "clearing"  # the file is an asset, verified; its rows are being taken out of the database
    ARCHIVED = "archived"
    RESTORING = "restoring"  # its rows are being put back
    FAILED = "failed"  # all rows are there; ``message`` says why no file was made
    REMOVING = "removing"  # the experiment is being deleted; its rows go first, some at a time


ARCHIVE_TRANSITIONS: dict[ArchivePhase | None, frozenset[ArchivePhase | None]] = {
    None: frozenset({ArchivePhase.WRITING, ArchivePhase.REMOVING}),
    ArchivePhase.WRITING: frozenset({ArchivePhase.CLEARING, ArchivePhase.FAILED, ArchivePhase.REMOVING}),
    ArchivePhase.CLEARING: frozenset({ArchivePhase.ARCHIVED, ArchivePhase.REMOVING}),
    ArchivePhase.ARCHIVED: frozenset({ArchivePhase.RESTORING, ArchivePhase.REMOVING}),
    ArchivePhase.RESTORING: frozenset({None, ArchivePhase.ARCHIVED, ArchivePhase.REMOVING}),
    ArchivePhase.FAILED: frozenset({None, ArchivePhase.WRITING, ArchivePhase.REMOVING}),
    ArchivePhase.REMOVING: frozenset(),
}
# Somebody works on these, and goes on with them after a restart.
UNDER_WAY = frozenset({ArchivePhase.WRITING, ArchivePhase.CLEARING, ArchivePhase.RESTORING, ArchivePhase.REMOVING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """``upto`` and ``kept`` say which rows it is about.

    Those of reports that no algorithm has answered, and of trials that have not ended or were not told, stay in the
    database: they are what a service reads when it starts.
    """

    phase: ArchivePhase
    upto: int  # the last line of the journal whose reports it holds
    kept: tuple[int, ...] = ()  # numbers of trials whose reports it leaves out, in order
    asset: AssetId | None = None
    rows: int = 0
    digest: str = ""  # of every value of every row, in the order of their key
    size: int = 0  # bytes of the file
    at: float = 0.0
    message: str = ""

    def numbers(self, upto: int) -> tuple[tuple[int, int], ...]:
        """The trials up to ``upto`` that it is about, as ranges without gaps."""
        ranges, begin = [], 1
        for number in (*self.kept, upto + 1):
            if number > begin:
                ranges.append((begin, number - 1))
            begin = number + 1
        return tuple(ranges)


def holds_all(archive: Archive | None) -> bool:
    """Whether the database has every row."""
    return archive is None or archive.phase is ArchivePhase.FAILED
