"""Blobs are removed many at a time: a start, and the removal of an experiment, hold everything else up meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select

from tests.builders import EXPERIMENT_ID, START, a_checkpoint, a_trial
from tests.contract.stores import changes_for
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.changes import Changes
from tuner_service.storage import tables
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore, prune


def keep(store: SqlStore, count: int) -> None:
    """Checkpoints of an experiment, each with a blob of its own."""
    digests = [f"{n:064x}" for n in range(1, count + 1)]
    rows = [a_checkpoint(sequence=n, digest=digest) for n, digest in enumerate(digests, start=1)]
    data = {digest: digest.encode() for digest in digests}
    store.commit(changes_for(a_trial(), blobs=data, checkpoints=rows))


def statements_of(store: SqlStore, work: Callable[[], object]) -> int:
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    engine = store._writer.engine
    event.listen(engine, "before_cursor_execute", note)
    work()
    event.remove(engine, "before_cursor_execute", note)
    return len(found)


def rows_in(store: SqlStore) -> list[int]:
    """Of blobs, of the places of their pieces, and of these."""
    counted = (tables.blobs, tables.blob_chunks, tables.chunks)
    with store.begin() as connection:
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in counted]


def removed(store: SqlStore) -> None:
    store.commit(Changes(deleted_experiments=[EXPERIMENT_ID]))


def looked_through(store: SqlStore) -> None:
    """As at a start, long after they came."""
    with store.begin() as connection:
        prune(connection, before=SystemClock().now() + START)


@pytest.mark.parametrize(("work", "left"), [(removed, 0), (looked_through, 1)])
def test_what_many_blobs_take_is_not_asked_for_each(
    tmp_path: Path, work: Callable[[SqlStore], None], left: int
) -> None:
    counts = (3, 60)
    took = []
    for count in counts:
        with closing(open_store(tmp_path / f"{count}.db", SystemClock())) as store:
            keep(store, count)
            took.append(statements_of(store, lambda store=store: work(store)))  # type: ignore[misc]  # bound now
            assert rows_in(store) == [left * count] * 3

    assert took[0] == took[1]


def test_more_of_them_than_a_statement_may_name_are_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner_service.storage.blobs._AT_ONCE", 4)
    with closing(open_store(tmp_path / "tuner.db", SystemClock())) as store:
        keep(store, 9)
        store.commit(Changes(blobs={"unnamed": b"x", "other": b"x"}))
        assert rows_in(store) == [11, 11, 10]
        looked_through(store)
        assert rows_in(store) == [9, 9, 9]
        removed(store)
        assert rows_in(store) == [0, 0, 0]
