"""What the core asks of the world where metrics leave the database and come back: of its rows, and of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import Checkpoint

MetricKey = tuple[int, int, int]  # (number, attempt, sequence) of a report; they count from 1


class MovedMetrics(NamedTuple):
    """Reports of the trials ``first`` to ``last`` of an experiment, on lines of the journal up to ``upto``."""

    experiment_id: ExperimentId
    first: int
    last: int
    upto: int | None = None  # None: on every line


class Portion(NamedTuple):
    """``last``: the key of the last row that was looked at. ``size`` 0: there are no more."""

    size: int
    last: MetricKey


class Held(NamedTuple):
    """What there is of an experiment; ``reports``: that were acknowledged, wherever their rows are."""

    reports: int
    checkpoint_bytes: int


class MovedRows(Protocol):
    """Metrics that leave the database and come back. Any thread; each call that writes is one short transaction."""

    def clear(self, moved: MovedMetrics, *, after: MetricKey, limit: int) -> Portion:
        """Remove the first ``limit`` of them behind ``after``. Safe to repeat."""

    def restore(self, experiment_id: ExperimentId, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows as ``page_of`` gave them; none of them is there. StorageError where their trials are gone."""

    def last_restored(self, moved: MovedMetrics) -> MetricKey | None:
        """The highest key among them that is there."""

    def checkpoints(self, experiment_id: ExperimentId, *, limit: int) -> Sequence[Checkpoint]:
        """Some of those that it has, as far as their removal asks for it; of damaged rows, too."""

    def remove(self, experiment_id: ExperimentId, *, limit: int) -> int:
        """Remove rows of its journal, then of its trials, which keep no metrics and checkpoints; how many. 0: all.

        Only of an experiment whose row says that it is being removed, so that it never comes back without them.
        """

    def has_more_than(self, experiment_id: ExperimentId, count: int) -> bool:
        """Whether it has so many metrics, lines of its journal, or trials."""

    def held(self, experiment_id: ExperimentId) -> Held:
        """Without a look at every row."""

    def give_back(self) -> bool:
        """Return a little of the room that is free to the operating system; False when there is nothing to return.

        On a server all of it at once, which may take long; UnavailableError where it was stopped.
        """

    def stop_giving_back(self) -> None:
        """That is under way is given up, and none begins. Called again until nobody gives back; any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """``pieces``: the digests of its pieces, as a manifest of an asset names them."""

    rows: int
    digest: str  # of every value of every row
    size: int
    pieces: tuple[str, ...]


class ArchiveFiles(Protocol):
    """Makes files of metrics and reads them; blocks as long as that takes."""

    def require(self) -> None:
        """NotInstalledError where a library is missing."""

    def write(self, moved: Sequence[MovedMetrics], file: Path) -> ArchivedFile:
        """What the database holds of them, written, read again and compared. StorageError: it could not be made."""

    def compare(self, moved: Sequence[MovedMetrics]) -> tuple[int, str]:
        """The count of those that the database holds, and their digest."""

    def read(self, file: Path, *, rows: int, digest: str, after: MetricKey) -> Iterator[list[list[Any]]]:
        """The rows behind ``after``, some at a time; StorageError before the first where the file is damaged."""

    def close(self) -> None:
        """Whatever is under way fails."""
