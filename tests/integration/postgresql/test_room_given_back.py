"""Room of metrics on a server: looked for only where there is some, and no longer than somebody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.builders import EXPERIMENT_ID
from tests.contract.stores import StillClock
from tests.postgresql import the_server
from tests.waiting import wait_until
from tuner_service.archive_ports import MovedMetrics
from tuner_service.domain.errors import UnavailableError
from tuner_service.storage.engine import open_store

ALL = MovedMetrics(EXPERIMENT_ID, 1, 1, None)
INSERTED = (
    "INSERT INTO metrics (experiment_id, number, attempt, sequence, line, step, values, first, at) "
    "SELECT '{}', 1, 1, n, n, n, '{{}}', true, n FROM generate_series(1, {}) n"
)
Execute = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def url() -> str:
    return the_server().filled_database()


@pytest.fixture
def execute(url: str) -> Execute:
    database = url.split("@/")[1].partition("?")[0]

    def execute(text: str) -> list[tuple[Any, ...]]:
        return the_server().execute(text, database=database)

    execute("ALTER TABLE metrics SET (autovacuum_enabled = off)")
    return execute


def test_the_table_is_looked_through_only_where_rows_went(url: str, execute: Execute) -> None:
    def counted(what: str) -> int:
        return int(execute(f"SELECT {what} FROM pg_stat_user_tables WHERE relname = 'metrics'")[0][0])

    execute(INSERTED.format(EXPERIMENT_ID, 10))
    execute(INSERTED.format("other", 20_000))
    with closing(open_store(url, StillClock())) as store:
        store.moved_rows.give_back()
        store.moved_rows.clear(ALL, after=(0, 0, 0), limit=10)
        store.moved_rows.give_back()
        store.moved_rows.give_back()
        wait_until(lambda: counted("vacuum_count"))
        store.moved_rows.give_back(is_asked_for=True)
        wait_until(lambda: counted("vacuum_count") > 1)
    execute("DELETE FROM metrics WHERE sequence % 2 = 0")  # by a service that was killed then
    wait_until(lambda: counted("n_dead_tup") > 1_000)
    with closing(open_store(url, StillClock())) as store:
        assert counted("vacuum_count") == 2
        store.moved_rows.give_back()
        wait_until(lambda: counted("vacuum_count") > 2)

    assert counted("vacuum_count") == 3


def test_a_table_that_somebody_has_locked_is_not_waited_for_without_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing would be archived or removed for as long as an index is made, or somebody is away from psql."""
    monkeypatch.setattr("tuner_service.storage.postgresql.vacuuming.LOCK_WAIT_MS", 10)
    with closing(open_store(url, StillClock())) as store, psycopg.connect(url) as somebody:
        somebody.execute("SET idle_in_transaction_session_timeout = '30s'")  # a service that waits is seen to
        somebody.execute("LOCK TABLE metrics IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(UnavailableError, match="another transaction holds what is needed"):
            store.moved_rows.give_back(is_asked_for=True)
        somebody.rollback()
        store.moved_rows.give_back(is_asked_for=True)


def test_a_look_that_takes_long_is_given_up_at_the_end_of_the_service(url: str, execute: Execute) -> None:
    errors: list[Exception] = []

    def give_back() -> None:
        try:
            store.moved_rows.give_back(is_asked_for=True)
        except UnavailableError as exc:
            errors.append(exc)

    with closing(open_store(url, StillClock())) as store, psycopg.connect(url) as somebody:
        somebody.execute("LOCK TABLE metrics IN SHARE MODE")
        giving = threading.Thread(target=give_back)
        giving.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'VACUUM%'"
        wait_until(lambda: execute(waiting))
        store.moved_rows.stop_giving_back()
        giving.join(30)

        assert not giving.is_alive()
        assert len(errors) == 1
        store.moved_rows.give_back(is_asked_for=True)  # returns at once: none begins any more
