"""Lines of a journal, and revisions of a search space: as many at a time as one answer may hold.

Most have some hundred bytes. A line with imported results may have a megabyte, as a search space may; while an answer
is encoded, no other thread runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from tuner_service.dispatcher.changes import JournalLine, SearchSpaceRevision
from tuner_service.dispatcher.routing import LineKind
from tuner_service.domain.experiment import ExperimentId
from tuner_service.ports import Queries

BYTES_OF_PAGE = 4 * 2**20  # after which a page ends
READ_AT_ONCE = 50
_LARGE = frozenset({LineKind.OUTCOMES_IMPORTED.value, LineKind.SEARCH_SPACE_CHANGED.value})

Row = TypeVar("Row")


def page_of_lines(
    queries: Queries, experiment_id: ExperimentId, *, after: int, limit: int
) -> tuple[list[JournalLine], bool]:
    """The lines behind ``after``, and whether others follow these.

    They are ``limit`` at most, or fewer where these have BYTES_OF_PAGE; one at least, where there is any. Call it
    inside a snapshot.
    """

    def read(found: Sequence[JournalLine], wanted: int) -> Sequence[JournalLine]:
        return queries.journal(experiment_id, after=found[-1].line if found else after, limit=wanted)

    return _page(read, lambda line: _size(line.payload) if line.kind in _LARGE else 0, limit)


def page_of_revisions(
    queries: Queries, experiment_id: ExperimentId, *, after: int, limit: int
) -> tuple[list[SearchSpaceRevision], bool]:
    """Likewise, of the revisions behind the first ``after``."""

    def read(found: Sequence[SearchSpaceRevision], wanted: int) -> Sequence[SearchSpaceRevision]:
        return queries.search_space_revisions(experiment_id, after=after + len(found), limit=wanted)

    return _page(read, lambda revision: _size(revision.search_space), limit)


def _page(
    read: Callable[[Sequence[Row], int], Sequence[Row]], size: Callable[[Row], int], limit: int
) -> tuple[list[Row], bool]:
    found: list[Row] = []
    bytes_ = 0
    while True:
        wanted = min(READ_AT_ONCE, limit + 1 - len(found))
        rows = read(found, wanted)
        for row in rows:
            if len(found) == limit or bytes_ >= BYTES_OF_PAGE:
                return found, True
            found.append(row)
            bytes_ += size(row)
        if len(rows) < wanted:
            return found, False


def _size(value: object) -> int:
    return len(json.dumps(value))
