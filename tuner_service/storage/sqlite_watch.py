"""Whether something was committed to a SQLite file, by whichever connection of whichever process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

_VERSION_BITS = 32


class CommitWatch:
    """``connect`` opens a connection that is used for nothing else, when somebody asks for the first time."""

    waits = False

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._lock = threading.Lock()

    def version(self) -> int | None:
        """Two equal answers say that nothing was committed between them; None: it cannot be told now. Any thread.

        Waits for nobody: where another program holds the database, it cannot be told.
        """
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._opened += 1
                ((version,),) = self._connection.execute("PRAGMA data_version").fetchall()
            except sqlite3.Error:
                self._close()
                return None
            # Each connection counts for itself, and begins anew.
            return (self._opened << _VERSION_BITS) + int(version)

    def close(self) -> None:
        """Safe to repeat; who asks again opens anew."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
