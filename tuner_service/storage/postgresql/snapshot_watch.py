"""Whether something was committed on a PostgreSQL server, as a process sees it that only reads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tuner_service.domain.errors import TunerServiceError
from tuner_service.storage.faults import translated
from tuner_service.storage.postgresql.connecting import Address, ask

if TYPE_CHECKING:
    import psycopg

ANSWER_LIMIT_MS = 1_000


class SnapshotWatch:
    """Implements ``sql_queries.Watch``. Two equal snapshots of the server see the same rows."""

    waits = True

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: psycopg.Connection[Any] | None = None
        self._snapshot = ""
        self._count = 0
        self._lock = threading.Lock()

    def version(self) -> int | None:
        with self._lock:
            try:
                with translated():
                    if self._connection is None:
                        self._connection = self._address.connect(statement_timeout=str(ANSWER_LIMIT_MS))
                    row = ask(self._connection, "SELECT pg_current_snapshot()::text")
            except TunerServiceError:
                self._close()
                return None
            snapshot = str(row)
            if snapshot != self._snapshot:
                self._snapshot, self._count = snapshot, self._count + 1
            return self._count

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
