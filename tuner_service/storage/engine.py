"""Opening a database: one active service, a file that is ours and whole, its schema up to date.

What a PostgreSQL server needs instead is in ``postgresql``. All SQL that only SQLite understands is here.

One connection writes; readers stand apart and open the file read-only. SQLite 3.7.0 to 3.51.2 can lose transactions
when two connections meet in a checkpoint of the write-ahead log. No reader here ever checkpoints, whatever the version:
the writer does it alone, when the log has grown.
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, insert

from trials.files import put_in_place
from tuner_service.domain.errors import StorageError
from tuner_service.ports import Clock
from tuner_service.storage import sqlite_file, tables
from tuner_service.storage.faults import translated
from tuner_service.storage.known_services import KnownService
from tuner_service.storage.lineage import settle_lineage
from tuner_service.storage.lock import FileLock
from tuner_service.storage.metric_rows import MetricInserts
from tuner_service.storage.other_names import require_no_other_name_in_use
from tuner_service.storage.sql_queries import SqlQueries
from tuner_service.storage.sql_store import SqlStore, WritingConnection, prune
from tuner_service.storage.sqlite_watch import CommitWatch

POSTGRESQL_SCHEMES = ("postgresql://", "postgresql+psycopg://", "postgres://")
READERS = 16  # most reads at once; one more waits, and is refused after READER_WAIT_S
READER_WAIT_S = 30.0
READER_CACHE_KIB = 8_000
WATCH_CACHE_KIB = 100  # reads no row
BUSY_TIMEOUT_S = 10.0  # how long to wait for a program that is not ours, a backup say
# The writer moves the log into the database when it is larger. A page that was written several times is moved once, so
# that a larger log costs less; after a crash it is read through, some 7 ms.
WAL_CHECKPOINT_BYTES = 16 << 20
AUTO_VACUUM_INCREMENTAL = 2
VACUUM_PAGES = 250  # a step, during which nothing else is committed: 1 MB
KEPT_FREE_PAGES = 1_000  # for what comes next
KEEP_UNNAMED_S = 7 * 86_400.0  # idempotency keys, and blobs whose record never came, are forgotten after it

log = logging.getLogger(__name__)


def open_store(
    url_or_path: str | Path, clock: Clock, *, home: str = "", url: str = "", waits: Callable[[], None] | None = None
) -> SqlStore:
    """The database as its one active service, created where there is none, migrated where it is older.

    StorageError, and the database is as it was: held by another service, not a database, damaged, not ours, or newer
    than this program. With ``waits`` it is not refused but waited for; that is called when the waiting begins.
    ``home`` and ``url`` say of this service where it is, to whoever asks the database.
    """
    if is_postgresql(url_or_path):
        from tuner_service.storage.postgresql import opening
        from tuner_service.storage.postgresql.lease import ThisService

        return opening.open_store(str(url_or_path), clock, me=ThisService(home=home, url=url), waits=waits)
    if waits is not None:
        raise StorageError(
            "a standby needs a database on a PostgreSQL server (--db postgresql://…): what is in a file, the machine "
            "of the file gives to the next service that is started"
        )
    path = sqlite_path(url_or_path)
    lock = FileLock.acquire(path)
    try:
        return _open_locked(path, clock, lock)
    except BaseException:
        lock.release()
        raise


def open_queries(url_or_path: str | Path) -> SqlQueries:
    """Only reads, beside an active service or without one. StorageError where this program cannot read the file."""
    if is_postgresql(url_or_path):
        from tuner_service.storage.postgresql import opening

        return opening.open_queries(str(url_or_path))
    path = sqlite_path(url_or_path)
    if not path.exists():
        raise StorageError(f"there is no database at {path}; start the service once, or name another with --db")
    revision = sqlite_file.inspect(path)
    if revision != tables.HEAD_REVISION:
        raise StorageError(
            f"the database {path} has revision {revision} and this program reads {tables.HEAD_REVISION}; "
            "start a service of this version on it first, or use the version that wrote it"
        )
    return _queries(path)


def revision_of(url_or_path: str | Path) -> str:
    """Of the schema. StorageError where there is none, or this program cannot read it."""
    if is_postgresql(url_or_path):
        from tuner_service.storage.postgresql import opening

        return opening.revision_of(str(url_or_path))
    return sqlite_file.inspect(sqlite_path(url_or_path))


def server_said(url: str) -> str:
    """Where a database on a server is, what the server is, and how large the database has become."""
    from tuner_service.storage.postgresql import opening

    return opening.said_of(url)


def services_of(url_or_path: str | Path) -> Sequence[KnownService]:
    """The active service of a database on a server and its standbys, as they said of themselves."""
    if not is_postgresql(url_or_path):
        raise StorageError("only a database on a PostgreSQL server knows its services; a file has one at most")
    from tuner_service.storage.postgresql import opening

    return opening.services_of(str(url_or_path))


def is_postgresql(url_or_path: str | Path) -> bool:
    return str(url_or_path).startswith(POSTGRESQL_SCHEMES)


def sqlite_path(url_or_path: str | Path) -> Path:
    """The file that is meant; links are followed, so that one database has one lock."""
    text = str(url_or_path)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise StorageError(
            f"{text.split('://', maxsplit=1)[0]!r} databases are not supported; give a file, or a postgresql:// URL"
        )
    path = Path(text).expanduser().resolve()
    if not path.parent.is_dir():
        raise StorageError(f"there is no folder {path.parent} for the database; create it or name another with --db")
    return path


def _open_locked(path: Path, clock: Clock, lock: FileLock) -> SqlStore:
    with translated():
        if not path.exists():
            _require_no_log(path)
            _create(path)
        else:
            require_no_other_name_in_use(path)
        mixed = sqlite_file.may_have_log_of_another(path, _fingerprint(path))
        revision = sqlite_file.inspect(path, all_of_it=mixed)
        if revision != tables.HEAD_REVISION:
            from tuner_service.storage.migrate import migrations_folder

            migrate_file(path, revision, folder=migrations_folder())
    log_path = path.with_name(path.name + "-wal")
    engine = _writing_engine(path)
    writer = FileWriter(
        engine, settle=lambda connection: _checkpoint(connection, log_path), metrics=MetricInserts(engine)
    )
    try:
        with translated(), writer.begin() as connection:
            _require_tables(connection, path)
            lineage = settle_lineage(connection, _fingerprint(path))
            prune(connection, before=clock.now() - KEEP_UNNAMED_S)
    except BaseException:
        writer.close()
        raise
    lock.note_database()
    return SqlStore(writer=writer, queries=_queries(path), lineage=lineage, clock=clock, hold=lock)


class FileWriter(WritingConnection):
    def give_back(self, *, rows_went: bool) -> bool:  # noqa: ARG002  # the file says what is free
        """A few pages from the end of the file, each moved to a free place before it. Files that were made before this
        existed keep their free pages, and use them again."""
        with self.begin() as connection:
            driver: Any = connection.connection.driver_connection
            (is_on,) = driver.execute("PRAGMA auto_vacuum").fetchone()
            (free,) = driver.execute("PRAGMA freelist_count").fetchone()
            if is_on != AUTO_VACUUM_INCREMENTAL or free <= KEPT_FREE_PAGES:
                return False
            driver.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        return True


# ── connections ─────────────────────────────────────────────────────────────────────────────────
def _writing_engine(path: Path, *, foreign_keys: bool = True) -> Engine:
    """One connection, whose every transaction takes the write lock at its start."""

    def connect() -> sqlite3.Connection:
        connection = _connect(path, mode="rw", cache_kib=32_000)
        (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        # A log that was moved keeps its size, and would be found too large after every commit.
        connection.execute(f"PRAGMA journal_size_limit = {WAL_CHECKPOINT_BYTES}")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute(f"PRAGMA foreign_keys = {int(foreign_keys)}")
        if journal_mode != "wal":
            connection.close()
            raise StorageError(f"{path} is on a file system without shared memory files; put it on a local disk")
        return connection

    return _engine(connect, begin="BEGIN IMMEDIATE", size=1)


def _queries(path: Path) -> SqlQueries:
    def connect(cache_kib: int) -> sqlite3.Connection:
        connection = _connect(path, mode="ro", cache_kib=cache_kib)
        connection.execute("PRAGMA query_only = ON")
        return connection

    watch = CommitWatch(lambda: connect(WATCH_CACHE_KIB))
    return SqlQueries(_engine(lambda: connect(READER_CACHE_KIB), begin="BEGIN", size=READERS), watch)


def _connect(path: Path, *, mode: str, cache_kib: int) -> sqlite3.Connection:
    """Without the driver's own transactions: SQLAlchemy's events begin them."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection


def _engine(connect: Callable[[], sqlite3.Connection], *, begin: str, size: int) -> Engine:
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _checkpoint(connection: Connection, log_path: Path) -> None:
    """Move the log into the database. Failing is harmless: the log holds everything, and the next time tries again."""
    try:
        if log_path.stat().st_size > WAL_CHECKPOINT_BYTES:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    except (OSError, sqlite3.Error) as exc:
        log.warning("checkpoint_failed", extra={"error": str(exc)})


# ── creating and migrating ──────────────────────────────────────────────────────────────────────
def _require_no_log(path: Path) -> None:
    log_path = sqlite_file.log_without_file(path)
    if log_path is not None:
        raise StorageError(
            f"{log_path} holds the last commits of a database that is not there any more, and would be written into a "
            f"new one: put {path.name} back beside it, or remove it to start anew"
        )


def _create(path: Path) -> None:
    """Made under another name and renamed when it is whole: a file that exists is never half a database."""
    unfinished = path.with_name(path.name + ".new")
    sqlite_file.remove(unfinished)
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def connect() -> sqlite3.Connection:
        connection = _connect(unfinished, mode="rw", cache_kib=2_000)
        connection.execute(f"PRAGMA auto_vacuum = {AUTO_VACUUM_INCREMENTAL}")  # only of a file without any table
        return connection

    engine = _engine(connect, begin="BEGIN IMMEDIATE", size=1)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
            tables.metadata.create_all(connection, checkfirst=False)
            tables.revisions.create(connection)
            connection.execute(insert(tables.revisions), {"version_num": tables.HEAD_REVISION})
    finally:
        engine.dispose()
    put_in_place(str(unfinished), str(path))


def migrate_file(path: Path, revision: str, *, folder: Path) -> None:
    """From ``revision`` to the newest of ``folder``, in one transaction, after a copy was put beside the file."""
    from tuner_service.storage import migrate

    if not migrate.is_known(revision, folder=folder):
        raise StorageError(
            f"the database {path} was written by a newer version (revision {revision}, this one knows up to "
            f"{tables.HEAD_REVISION}); install that version, or name another database with --db"
        )
    backup = path.with_name(f"{path.name}.before-{migrate.head(folder=folder)}")
    sqlite_file.back_up(path, backup)
    engine = _writing_engine(path, foreign_keys=False)
    try:
        with engine.begin() as connection:
            migrate.upgrade(connection, folder=folder)
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
            if broken is not None:
                raise StorageError(
                    f"the migration of {path} would break a reference in table {broken[0]}; the database is as it "
                    f"was, a copy is {backup}: use the version that wrote it and report this"
                )
    finally:
        engine.dispose()
    log.info("database_migrated", extra={"from_revision": revision, "backup": str(backup)})


def _require_tables(connection: Connection, path: Path) -> None:
    """A file may be whole as SQLite sees it, and have lost a table."""
    there = {name for (name,) in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    missing = sorted(tables.metadata.tables.keys() - there)
    if missing:
        raise StorageError(
            f"the database {path} is damaged: table {', '.join(missing)} is missing; restore it from a backup"
        )


# ── lineage ─────────────────────────────────────────────────────────────────────────────────────
def _fingerprint(path: Path) -> str:
    """The same while the file stays in its file system, also when it is renamed or the machine reboots."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine = ""
    # The file system's own id: the device number can be another one after a reboot.
    return f"{machine or socket.gethostname()}:{os.statvfs(path).f_fsid}:{path.stat().st_ino}"
