"""Copies of a database that are broken off or take long, a pool before a server, and room that its indexes keep."""

from __future__ import annotations

import os
import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table

from tests.contract.stores import StillClock
from tests.forked import Child
from tests.migrations import build_database as stored
from tests.postgresql import the_server
from tuner_service.cli.output.exit_codes import CommandError
from tuner_service.cli.verbs.db import copy as copy_of_the_command
from tuner_service.domain.errors import InUseError, StorageError
from tuner_service.storage import copying, tables
from tuner_service.storage.copying import CopiedTable, copy_database
from tuner_service.storage.engine import open_store
from tuner_service.storage.postgresql import lease

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[3]


def name_of(url: str) -> str:
    return url.split("@/")[1].partition("?")[0]


def test_a_pool_that_hands_sessions_out_by_transaction_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    url = the_server().filled_database()
    with monkeypatch.context() as pooled:
        pooled.setattr(lease, "_SESSION", "SELECT 7")  # as two connections say where both had the same one
        with pytest.raises(StorageError, match=r"by transaction.*pool_mode = session"):
            open_store(url, StillClock())
    open_store(url, StillClock()).close()  # at once: the lease was given back


def test_room_of_indexes_is_given_back_by_the_statement_of_the_operations_page_beside_a_service() -> None:
    """VACUUM, with which archiving ends, keeps it for rows that come."""
    url = the_server().filled_database()
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    ((statement),) = re.findall(r"`(REINDEX [^`]+)`", page)

    def execute(text: str) -> list[tuple[Any, ...]]:
        return the_server().execute(text, database=name_of(url))

    def size_of_indexes() -> int:
        return int(execute("SELECT pg_indexes_size('metrics')")[0][0])

    with closing(open_store(url, StillClock())) as store:
        for experiment_id in ("gone", "kept"):
            execute(
                "INSERT INTO metrics (experiment_id, number, attempt, sequence, line, step, values, first, at) "
                f"SELECT '{experiment_id}', 1, 1, n, n, n, '{{}}', true, n FROM generate_series(1, 20000) n"
            )
        execute("DELETE FROM metrics WHERE experiment_id = 'gone'")
        before = size_of_indexes()
        store.moved_rows.give_back()
        assert size_of_indexes() >= before
        execute(statement)
        assert size_of_indexes() < before * 0.6

        assert execute("SELECT count(*), sum(line) FROM metrics") == [(20_000, 20_000 * 20_001 // 2)]
        assert execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
        assert store.commit(stored.changes()) == 1


def copy_and_die(source: str | Path, target: str | Path, *, after: int) -> None:
    """kill -9 once so many tables are in the copy."""
    done: list[str] = []

    def count(table: CopiedTable) -> None:
        done.append(table.name)
        if len(done) == after:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(open_store(source, StillClock())) as store, closing(open_store(target, StillClock())) as copy:
        copy_database(store, copy, count)


@pytest.mark.parametrize("way", ["to a server", "to a file"])
def test_a_copy_that_was_killed_has_left_nothing_and_is_made_again(way: str, tmp_path: Path) -> None:
    file, url = tmp_path / "tuner.db", the_server().filled_database()
    source, target = (file, url) if way == "to a server" else (url, file)
    with closing(open_store(source, StillClock())) as store:
        store.commit(stored.changes())
    count = len(tables.metadata.tables) - 1  # all but what is the database's own
    for after in (1, count):
        child = Child(lambda after=after: copy_and_die(source, target, after=after), tmp_path / "said")  # type: ignore[misc]  # mypy knows no such lambda
        assert child.wait(120)
        assert child.code == -signal.SIGKILL, (tmp_path / "said").read_text()
        with closing(open_store(target, StillClock())) as copy:
            assert copy.load() == ()
            assert copy.queries.sequence() == 0
    with closing(open_store(source, StillClock())) as store, closing(open_store(target, StillClock())) as copy:
        copy_database(store, copy, lambda _: None)
        assert repr(copy.load()) == repr(store.load())


@pytest.mark.parametrize("busy", ["source", "target"])
def test_nothing_is_copied_while_a_service_runs_on_either_side(busy: str, tmp_path: Path) -> None:
    url = the_server().filled_database()
    source, target = (url, str(tmp_path / "tuner.db")) if busy == "source" else (str(tmp_path / "tuner.db"), url)
    for place in (source, target):
        open_store(place, StillClock()).close()
    with closing(open_store(url, StillClock())):
        with pytest.raises(InUseError, match="stop that service"):
            copy_of_the_command(source, target)
        with pytest.raises(CommandError, match="are one database"):
            copy_of_the_command(url, url)


def test_a_copy_may_take_longer_than_reads_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the one are not asked for while those of the other are compared."""
    copied, limits = copying._copy, set[str]()

    def watched(reading: Connection, writing: Connection, table: Table) -> copying.CopiedTable:
        for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
            limits.add(str(reading.exec_driver_sql(f"SHOW {name}").scalar()))
        return copied(reading, writing, table)

    monkeypatch.setattr(copying, "_copy", watched)
    url = the_server().filled_database()
    with (
        closing(open_store(url, StillClock())) as store,
        closing(open_store(tmp_path / "tuner.db", StillClock())) as copy,
    ):
        store.commit(stored.changes())
        copy_database(store, copy, lambda _: None)
        assert repr(copy.load()) == repr(store.load())
    assert limits == {"0"}
