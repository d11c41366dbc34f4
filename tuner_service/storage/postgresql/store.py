"""The one writer on a PostgreSQL server, which may go away at any moment, and come back."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, select

from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import UnavailableError
from tuner_service.ports import Clock
from tuner_service.storage import tables
from tuner_service.storage.faults import ConnectionLostError, translated
from tuner_service.storage.metric_rows import MetricWriter
from tuner_service.storage.postgresql.connecting import IDLE_IN_TRANSACTION_MS
from tuner_service.storage.postgresql.lease import Lease
from tuner_service.storage.postgresql.vacuuming import Vacuum
from tuner_service.storage.sql_queries import SqlQueries
from tuner_service.storage.sql_store import SqlStore, WritingConnection

RETRIED_S = 5.0  # so long a commit waits for a server that went away; then whoever sent it is told to try again
RETRY_PAUSE_S = 0.1
PATIENT_MS = (
    60_000  # as IDLE_IN_TRANSACTION_MS, of a transaction that is done again: who takes over ends it all the same
)

_END_SESSION = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = %s AND application_name = current_setting('application_name') AND datname = current_database()"""

log = logging.getLogger(__name__)


class CommitCount:
    """Implements ``sql_queries.Watch`` for the process that writes alone: nothing changes but by its transactions."""

    waits = False

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        self._count += 1

    def version(self) -> int | None:
        return self._count

    def close(self) -> None:
        """There is nothing to close."""


class CountedWriter(WritingConnection):
    """Counts its transactions, however they ended."""

    def __init__(self, engine: Engine, *, commits: CommitCount, metrics: MetricWriter, vacuum: Vacuum) -> None:
        super().__init__(engine, settle=lambda _: None, metrics=metrics)
        self._commits, self._vacuum = commits, vacuum

    def give_back(self, *, rows_went: bool) -> bool:
        """All at once, because the server does it beside whoever writes, and on a connection of its own."""
        self._vacuum.run(rows_went=rows_went)
        return False

    def stop_giving_back(self) -> None:
        self._vacuum.stop()

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        try:
            with super().begin() as connection:
                yield connection
        finally:
            self._commits.add()


class PostgresqlStore(SqlStore):
    """A commit whose connection is lost is looked up before anything of it is done again."""

    _under_way: int | None = None  # the sequence of a transaction whose COMMIT may have been asked for
    _session = 0  # the server's process that has it, or had the one before
    _idle_ms = IDLE_IN_TRANSACTION_MS

    def __init__(
        self, *, writer: WritingConnection, queries: SqlQueries, lineage: str, clock: Clock, lease: Lease
    ) -> None:
        super().__init__(writer=writer, queries=queries, lineage=lineage, clock=clock, hold=lease)
        self._lease = lease

    def commit(self, changes: Changes) -> int:
        sequence = self._committed(changes)
        self._lease.acknowledged = sequence
        return sequence

    def _committed(self, changes: Changes) -> int:
        until, self._idle_ms = 0.0, IDLE_IN_TRANSACTION_MS
        while True:
            self._under_way, begun = None, time.monotonic()
            try:
                return super().commit(changes)
            except ConnectionLostError as lost:
                if (time.monotonic() - begun) * 1000 > self._idle_ms:
                    # A machine so busy that the server took this process for stopped: once more in peace.
                    self._idle_ms = PATIENT_MS
                if not until:  # counted from here: this process may have been stopped for long
                    until = time.monotonic() + RETRIED_S
                    log.warning("commit_lost_its_connection", extra={"error": str(lost), "sequence": self._under_way})
                if self._under_way is not None and self._was_taken(self._under_way, until):
                    return self._under_way
                if time.monotonic() > until:
                    raise
            time.sleep(RETRY_PAUSE_S)

    def _save(self, connection: Connection, changes: Changes) -> int:
        if self._idle_ms != IDLE_IN_TRANSACTION_MS:
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {self._idle_ms}")
        self._end_session_before(connection)
        self._under_way = sequence = super()._save(connection, changes)
        return sequence

    def _end_session_before(self, connection: Connection) -> None:
        """The server may not know yet that nobody listens there, and would keep the locks of its transaction."""
        session = _session_of(connection)
        if self._session not in {0, session}:
            connection.exec_driver_sql(_END_SESSION, (self._session,))
        self._session = session

    def _was_taken(self, sequence: int, until: float) -> bool:
        """Whether the commit of that sequence is on the disk; nobody else can have written one under this epoch.

        UnavailableError where the server does not come back in time: then the rows will say it.
        """
        while True:
            try:
                with translated(), self._writer.begin() as connection:
                    self._end_session_before(connection)
                    # Waits until the server has done with the transaction, which holds its lock to the end.
                    connection.exec_driver_sql("SELECT epoch FROM tuner_lease FOR UPDATE")
                    c = tables.commits
                    return connection.scalar(select(c.c.sequence).where(c.c.sequence == sequence)) is not None
            except UnavailableError:
                if time.monotonic() > until:
                    raise
            time.sleep(RETRY_PAUSE_S)


def _session_of(connection: Connection) -> int:
    driver: Any = connection.connection.driver_connection
    return int(driver.info.backend_pid)
