"""Reports of a trial are read in portions, and no page has many more values than it may."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial, an_experiment
from tests.memory_store import MemoryQueries, MemoryStore
from tuner_service.dispatcher.changes import Changes
from tuner_service.ports import TrialMetric
from tuner_service.service import report_pages
from tuner_service.service.report_pages import page_of_reports


class Counted:
    """The queries of a store, and how many reports each read of them gave."""

    def __init__(self, queries: MemoryQueries) -> None:
        self._queries = queries
        self.read: list[int] = []

    def metrics(self, experiment_id: str, number: int, *, after: tuple[int, int], limit: int) -> Sequence[TrialMetric]:
        found = self._queries.metrics(experiment_id, number, after=after, limit=limit)
        self.read.append(len(found))
        return found


def reported(count: int, *, values: int = 1) -> Counted:
    store = MemoryStore()
    metrics = [
        a_metric(sequence=sequence, step=sequence, values={f"m{n}": 0.5 for n in range(values)}, at=START)
        for sequence in range(1, count + 1)
    ]
    trials = {(EXPERIMENT_ID, 1): a_trial()}
    store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, trials=trials, metrics=metrics))
    return Counted(store.queries)


def pages(queries: Counted, limit: int) -> list[list[int]]:
    found, after, goes_on = list[list[int]](), (0, 0), True
    while goes_on:
        rows, goes_on = page_of_reports(queries, EXPERIMENT_ID, 1, after=after, limit=limit)  # type: ignore[arg-type]  # it reads nothing else
        found.append([row.sequence for row in rows])
        after = (rows[-1].attempt, rows[-1].sequence) if rows else after
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 100])
@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_every_report_is_on_one_page(monkeypatch: pytest.MonkeyPatch, limit: int, at_once: int) -> None:
    monkeypatch.setattr(report_pages, "READ_AT_ONCE", at_once)
    every = list(range(1, 8))

    assert pages(reported(7), limit) == [every[at : at + limit] for at in range(0, 7, limit)]


def test_of_none_there_is_an_empty_page() -> None:
    assert pages(reported(0), 10) == [[]]


def test_a_page_ends_where_its_reports_have_enough_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_pages, "VALUES_OF_PAGE", 10)
    monkeypatch.setattr(report_pages, "READ_AT_ONCE", 4)
    wide = reported(7, values=5)

    assert pages(wide, 100) == [[1, 2], [3, 4], [5, 6], [7]]
    assert max(wide.read) <= 4, "what is not shown is not read either, but for a portion"
    assert pages(reported(3, values=50), 100) == [[1], [2], [3]]
