"""A database that is moved into another: every value is compared before anything of the copy is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial
from tests.contract.stores import changes_for
from tests.unit.storage.test_opening import StillClock
from tuner_service.domain.errors import StorageError
from tuner_service.storage import tables
from tuner_service.storage.copying import CopiedTable, copy_database
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

Stores = tuple[SqlStore, SqlStore]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """One with a trial and its metrics, and an empty one."""
    clock = StillClock(START)
    with closing(open_store(tmp_path / "a.db", clock)) as source, closing(open_store(tmp_path / "b.db", clock)) as copy:
        source.commit(changes_for(a_trial(), metrics=[a_metric(sequence=n, step=n) for n in (1, 2, 3)]))
        yield source, copy


def copied(stores: Stores) -> dict[str, CopiedTable]:
    found: list[CopiedTable] = []
    copy_database(*stores, found.append)
    return {table.name: table for table in found}


def test_each_table_is_told_with_its_rows_and_a_digest_of_their_values(stores: Stores, tmp_path: Path) -> None:
    told = copied(stores)

    assert [told[name].rows for name in ("experiments", "trials", "metrics", "attempts")] == [1, 1, 3, 0]
    assert len({told[name].digest for name in ("experiments", "trials", "metrics", "attempts")}) == 4
    assert stores[1].queries.trial(EXPERIMENT_ID, 1) == a_trial()
    with closing(open_store(tmp_path / "c.db", StillClock(START))) as third:
        assert copied((stores[1], third)) == told


def test_a_value_that_became_another_on_the_way_is_found_and_nothing_is_kept(stores: Stores) -> None:
    with stores[1].begin() as connection:
        connection.exec_driver_sql(
            "CREATE TEMP TRIGGER changing AFTER INSERT ON metrics WHEN new.sequence = 2 "
            "BEGIN UPDATE metrics SET step = 7 WHERE sequence = 2; END"
        )

    with pytest.raises(StorageError, match=r"table metrics is not the same in the copy \(3 rows, .* and 3 rows, "):
        copied(stores)

    with stores[1].begin() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.experiments)) == 0
