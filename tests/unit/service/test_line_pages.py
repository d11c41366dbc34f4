"""Pages of a journal and of revisions end where they hold as many bytes as one answer may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_line, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.dispatcher.changes import Changes, SearchSpaceRevision
from tuner_service.service import line_pages
from tuner_service.service.line_pages import page_of_lines, page_of_revisions

SPACE = {"x": {"type": "categorical", "choices": ["a" * 100, "b"]}}
COUNT = 7


@pytest.fixture(params=[2, 50])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(line_pages, "READ_AT_ONCE", request.param)
    store, numbers = MemoryStore(), range(1, COUNT + 1)
    kinds = {4: "trial_added"}
    payload = {"search_space": SPACE}
    lines = [a_line(line=n, kind=kinds.get(n, "search_space_changed"), payload=payload) for n in numbers]
    spaces = [SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=n, search_space=SPACE, at=START) for n in numbers]
    store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, journal=lines, search_spaces=spaces))
    return store


@pytest.mark.parametrize(("bytes_", "lengths"), [(1, [1, 1, 2, 1, 1, 1]), (2**20, [3, 3, 1])])
def test_a_page_of_the_journal_ends_behind_the_line_that_fills_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, bytes_: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(line_pages, "BYTES_OF_PAGE", bytes_)
    pages, after, has_more = list[list[Any]](), 0, True
    while has_more:
        page, has_more = page_of_lines(store.queries, EXPERIMENT_ID, after=after, limit=3)
        pages.append(page)
        after = page[-1].line
    assert [line.line for page in pages for line in page] == list(range(1, COUNT + 1))
    assert sorted(map(len, pages)) == sorted(lengths)


@pytest.mark.parametrize(("bytes_", "lengths"), [(1, [1] * COUNT), (2**20, [3, 3, 1])])
def test_a_page_of_revisions_ends_behind_the_one_that_fills_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, bytes_: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(line_pages, "BYTES_OF_PAGE", bytes_)
    pages, has_more = list[list[Any]](), True
    while has_more:
        after = sum(map(len, pages))
        page, has_more = page_of_revisions(store.queries, EXPERIMENT_ID, after=after, limit=3)
        pages.append(page)
    assert [revision.line for page in pages for revision in page] == list(range(1, COUNT + 1))
    assert list(map(len, pages)) == lengths


def test_behind_the_last_there_is_an_empty_page(store: MemoryStore) -> None:
    assert page_of_lines(store.queries, EXPERIMENT_ID, after=COUNT, limit=3) == ([], False)
    assert page_of_revisions(store.queries, EXPERIMENT_ID, after=COUNT, limit=3) == ([], False)
