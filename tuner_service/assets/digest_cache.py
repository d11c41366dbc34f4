"""What was hashed before: a file whose fingerprint is the same has the same digests, and is not read again.

The cache is one SQLite file of the user. It is only ever a help: where it cannot be used, everything is hashed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner_service.assets.sources import Fingerprint, SourceFile

CACHE_FILE = "digests-1.db"
ENTRIES_KEPT = 5_000_000  # of all folders; the longest unused are forgotten
WAIT_S = 5.0  # for another command that writes
# A file that was written to a moment ago may be written to again within the resolution of its times.
SETTLED_NS = 2_000_000_000
_TABLE = """
CREATE TABLE IF NOT EXISTS digests (
  folder TEXT NOT NULL, name TEXT NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL, pieces BLOB NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (folder, name)) WITHOUT ROWID
"""
Digests = tuple[str, ...]
_BYTES = 32
_UNUSABLE = (sqlite3.Error, OverflowError)


class DigestCache:
    """Not thread-safe. No call raises: what the file cannot give is hashed anew."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or _default_path()
        self._connection: sqlite3.Connection | None = None
        with contextlib.suppress(OSError, sqlite3.Error):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
            self._connection = connection
            # What is lost with the power was hashed in vain, and nothing else.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE)

    def find(self, files: Iterable[SourceFile]) -> dict[str, Digests]:
        """By location, the digests of the pieces of each file that has not changed since it was hashed."""
        wanted: dict[str, dict[str, SourceFile]] = {}
        for file in files:
            folder, _, name = file.location.rpartition("/")
            wanted.setdefault(folder, {})[name] = file
        found: dict[str, Digests] = {}
        connection = self._connection
        if connection is None:
            return found
        with contextlib.suppress(*_UNUSABLE):
            for folder, its in wanted.items():
                query = "SELECT name, inode, size, mtime_ns, ctime_ns, pieces FROM digests WHERE folder = ?"
                for name, inode, size, mtime_ns, ctime_ns, pieces in connection.execute(query, (_text(folder),)):
                    listed = its.get(name)
                    known = Fingerprint(inode=inode, size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns)
                    if listed is not None and listed.fingerprint == known:
                        found[listed.location] = _digests(pieces)
        return found

    def keep(self, hashed: Mapping[SourceFile, Digests]) -> None:
        """For the next time; of files that changed a moment ago nothing is kept."""
        settled = time.time_ns() - SETTLED_NS
        rows = []
        for file, pieces in hashed.items():
            folder, _, name = file.location.rpartition("/")
            known = file.fingerprint
            if max(known.mtime_ns, known.ctime_ns) < settled:
                packed = b"".join(map(bytes.fromhex, pieces))
                times = (known.inode, known.size, known.mtime_ns, known.ctime_ns)
                rows.append((_text(folder), _text(name), *times, packed, time.time_ns() // 1_000_000_000))
        if self._connection is not None and rows:
            with contextlib.suppress(*_UNUSABLE), self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def forget_oldest(self) -> None:
        """Half of what there is, where there is more than ENTRIES_KEPT."""
        if self._connection is None:
            return
        with contextlib.suppress(*_UNUSABLE), self._connection as connection:
            (count,) = connection.execute("SELECT count(*) FROM digests").fetchone()
            if count > ENTRIES_KEPT:
                newest = "SELECT used FROM digests ORDER BY used DESC LIMIT 1 OFFSET ?"
                (before,) = connection.execute(newest, (ENTRIES_KEPT // 2,)).fetchone()
                connection.execute("DELETE FROM digests WHERE used <= ?", (before,))

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()


def _digests(packed: bytes) -> Digests:
    return tuple(packed[start : start + _BYTES].hex() for start in range(0, len(packed), _BYTES))


def _text(name: str) -> str:
    return name.encode(errors="replace").decode()


def _default_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "tuner" / CACHE_FILE
    try:
        return Path.home() / ".cache" / "tuner" / CACHE_FILE
    except RuntimeError:
        return Path(os.devnull) / CACHE_FILE  # a user without a home folder has no cache
