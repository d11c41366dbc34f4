"""The database as a file: is it ours, is it whole, which revision has it; and copies of it. Never changes it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from trials.files import put_in_place
from tuner_service.domain.errors import StorageError

APPLICATION_ID = 0x54756E65  # in the header of every file of ours
QUICK_CHECK_BYTES = 32 << 20  # larger files are only looked at; `tuner doctor` reads all of them
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100


def inspect(path: Path, *, all_of_it: bool = False) -> str:
    """The revision of the schema. StorageError for a file that is damaged, or not one of ours.

    ``all_of_it``: a large file is read as a small one is, whole.
    """
    _check_header(path)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"alembic_version", "meta", "experiments"} <= known:
                raise _not_ours(path)
            if all_of_it or path.stat().st_size <= QUICK_CHECK_BYTES:
                (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if finding != "ok":
                    raise _damaged(path, finding)
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as exc:
        raise StorageError(f"the database {path} cannot be opened: {exc}; check its permissions") from exc
    except sqlite3.DatabaseError as exc:
        raise _damaged(path, str(exc)) from exc
    if row is None:
        raise _damaged(path, "it names no revision")
    return str(row[0])


def log_without_file(path: Path) -> Path | None:
    """What SQLite would write into a new file of that name: the log of a database that is not there any more."""
    logs = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    return next((log for log in logs if _size(log)), None)


def may_have_log_of_another(path: Path, fingerprint: str) -> bool:
    """Whether the file was put in the place of the one that the log beside it was written for, as far as one sees.

    SQLite cannot tell, and mixes the two. A log is mostly newer than its file, and that names the place it is in.
    """
    log = path.with_name(path.name + "-wal")
    if not _size(log):
        return False
    if path.stat().st_mtime_ns > log.stat().st_mtime_ns:
        return True
    try:  # the file alone, as if there were no log
        with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'fingerprint'").fetchone()
    except sqlite3.Error:
        return True
    return row is None or str(row[0]) != fingerprint


def check_integrity(path: Path) -> list[str]:
    """Everything that a full read finds wrong; empty for a whole database. Takes seconds a gigabyte."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            findings = [str(finding) for (finding,) in connection.execute("PRAGMA integrity_check(100)")]
            broken = [
                f"table {table}: a row refers to {parent}, where its counterpart is missing"
                for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchmany(100)
            ]
    except sqlite3.DatabaseError as exc:
        return [str(exc)]
    return [f for f in findings if f != "ok"] + broken


def back_up(path: Path, copy: Path) -> None:
    """A whole copy, also of what still stands in the log; replaces an older one only when it is complete."""
    unfinished = copy.with_name(copy.name + ".new")
    remove(unfinished)
    with (
        closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(unfinished)) as target,
    ):
        source.backup(target)
    put_in_place(str(unfinished), str(copy))


def remove(path: Path) -> None:
    """The file and what SQLite keeps beside it, as far as they exist."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as exc:
        raise StorageError(f"the database {path} cannot be read: {exc.strerror}; check its permissions") from exc
    if not header:
        raise StorageError(f"the database {path} is empty; restore it from a backup, or remove it to start anew")
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StorageError(
            f"{path} is not a database, or its beginning was overwritten; restore it from a backup, "
            "or name another file with --db"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise _not_ours(path)
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    pages = int.from_bytes(header[28:32], "big")
    log = path.with_name(path.name + "-wal")
    # With a log, pages that the file lacks may stand there.
    is_alone = not log.exists() or log.stat().st_size == 0
    if is_alone and path.stat().st_size < pages * page_bytes:
        raise _damaged(path, f"it has {path.stat().st_size} of {pages * page_bytes} bytes")


def _damaged(path: Path, finding: str) -> StorageError:
    log = f"{path.name}-wal"
    first = f"; remove {log} and {path.name}-shm then, which would be written into the backup"
    hint = first if _size(path.with_name(log)) else ""
    return StorageError(
        f"the database {path} is damaged: {finding}; it was not touched: restore it from a backup{hint}"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _not_ours(path: Path) -> StorageError:
    return StorageError(f"{path} is a database of another program; name another file with --db")
