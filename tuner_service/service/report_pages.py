"""The reports of a trial for people: as many at a time as one answer may hold."""

from __future__ import annotations

from tuner_service.domain.experiment import ExperimentId
from tuner_service.ports import Queries, TrialMetric

VALUES_OF_PAGE = 200_000  # after which a page of reports, or of trials with their reports, ends
READ_AT_ONCE = 500  # reports; each may have a thousand values


def page_of_reports(
    queries: Queries, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int
) -> tuple[list[TrialMetric], bool]:
    """The reports behind (attempt, sequence) ``after``, and whether others follow these.

    They are ``limit`` at most, or fewer where these have VALUES_OF_PAGE values; one at least, where there is any. Call
    it inside a snapshot.
    """
    found: list[TrialMetric] = []
    values = 0
    while True:
        wanted = min(READ_AT_ONCE, limit + 1 - len(found))
        rows = queries.metrics(experiment_id, number, after=after, limit=wanted)
        for row in rows:
            if len(found) == limit or values >= VALUES_OF_PAGE:
                return found, True
            found.append(row)
            values += len(row.values)
        if len(rows) < wanted:
            return found, False
        after = rows[-1].attempt, rows[-1].sequence
