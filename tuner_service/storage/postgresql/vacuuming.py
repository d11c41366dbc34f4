"""The room that rows of metrics had, on a server: beside whoever writes, and only where there is some."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tuner_service.storage.postgresql.connecting import LOCK_WAIT_MS

if TYPE_CHECKING:
    import psycopg

    from tuner_service.storage.postgresql.connecting import Address

CANCEL_S = 2.0  # for the server to take the order to give it up
# Of fewer rows the room is found again by those that come; the whole table would be looked through for it.
_IS_WORTH_IT = """SELECT coalesce(max(n_dead_tup), 0) > greatest(1000, max(n_live_tup) / 100)
    FROM pg_stat_user_tables WHERE relid = 'metrics'::regclass"""


class Vacuum:
    """Rows that were taken out leave room for others; what is free at the end of the table goes to the file system."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._is_stopped = False

    def run(self, *, rows_went: bool) -> None:
        """Where ``rows_went`` just now, or the server has counted enough that are gone. It may take long.

        Somebody who has locked the table, for an index say, is not waited for as long as it takes: whoever calls has
        other things to do.
        """
        with self._address.connect(statement_timeout="0", lock_timeout=str(LOCK_WAIT_MS)) as connection:
            with self._lock:
                if self._is_stopped:
                    return
                self._connection = connection
            try:
                if rows_went or connection.execute(_IS_WORTH_IT).fetchone() == (True,):
                    connection.execute("VACUUM (ANALYZE) metrics")
            finally:
                with self._lock:
                    self._connection = None

    def stop(self) -> None:
        """The one under way is given up, and none begins. To be called again until ``run`` has returned: an order that
        comes between two statements ends none."""
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                with suppress(Exception):  # the server is away: then the statement ends, too
                    self._connection.cancel_safe(timeout=CANCEL_S)
