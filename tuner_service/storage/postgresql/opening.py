"""Opening a PostgreSQL database: one active service, tables that are ours, a schema that is up to date."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect

from tuner_service.domain.errors import StorageError, UnavailableError
from tuner_service.ports import Clock
from tuner_service.storage import tables
from tuner_service.storage.commits import newest_of
from tuner_service.storage.faults import translated
from tuner_service.storage.known_services import KnownService
from tuner_service.storage.lineage import settle_lineage
from tuner_service.storage.postgresql.claiming import acquire
from tuner_service.storage.postgresql.connecting import LOCK_WAIT_MS, Address, ask, reading_engine, writing_engine
from tuner_service.storage.postgresql.lease import LEASE_S, Lease, ThisService, session_of
from tuner_service.storage.postgresql.row_copy import MetricCopy
from tuner_service.storage.postgresql.snapshot_watch import SnapshotWatch
from tuner_service.storage.postgresql.store import CommitCount, CountedWriter, PostgresqlStore
from tuner_service.storage.postgresql.vacuuming import Vacuum
from tuner_service.storage.sql_queries import SqlQueries
from tuner_service.storage.sql_store import prune

if TYPE_CHECKING:
    import psycopg

KEEP_UNNAMED_S = 7 * 86_400.0  # as on SQLite
PUT_OFF_S = 1.0  # before a standby tries again to take over; another one may meanwhile
OLDEST_SERVER = 130_000  # as the server counts versions
_OURS = {"alembic_version", "meta", "experiments"}
_BESIDE = {"tuner_lease", "tuner_services"}

# The server looks the trial up for every single row, which is two fifths of what a report costs it: ``row_copy`` does
# it once a step, and who deletes an experiment deletes its metrics first (``sql_store``).
_SPARED = "ALTER TABLE metrics DROP CONSTRAINT IF EXISTS fk_metrics_experiment_id"
_SERVICES = """SELECT s.id,
        CASE WHEN l.service = s.id AND l.expires_at > clock_timestamp() THEN 'active'
             WHEN s.role = 'active' OR s.seen_at < clock_timestamp() - %s * interval '1 s' THEN 'gone'
             ELSE 'standby' END AS role,
        s.host, s.pid, s.home, s.url, s.version, to_char(s.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        extract(epoch FROM clock_timestamp() - s.seen_at)::float8
    FROM tuner_services s LEFT JOIN tuner_lease l ON true ORDER BY role, s.started_at"""

log = logging.getLogger(__name__)


def open_store(url: str, clock: Clock, *, me: ThisService, waits: Callable[[], None] | None = None) -> PostgresqlStore:
    """The database as its one active service, its tables made where there are none, migrated where they are older.

    StorageError, and the database is as it was: held by another service, not ours, or newer than this program.
    With ``waits`` it is not refused but waited for, and a takeover that something passing kept from its end, a table
    that an operator has locked say, is tried again. UnavailableError: the server does not answer.
    """
    address = Address(url)
    _require_usable(address)
    while True:
        lease = acquire(address, me, waits=waits)
        try:
            return _open_held(address, clock, lease)
        except UnavailableError as exc:
            lease.release()
            if waits is None:
                raise
            log.warning("takeover_put_off", extra={"error": str(exc)})
        except BaseException:
            lease.release()
            raise
        time.sleep(PUT_OFF_S)


def open_queries(url: str) -> SqlQueries:
    """Only reads, beside an active service or without one. StorageError where this program cannot read the tables."""
    address = Address(url)
    revision = revision_of(url)
    if revision != tables.HEAD_REVISION:
        raise StorageError(
            f"the database {address.shown} has revision {revision} and this program reads {tables.HEAD_REVISION}; "
            "start a service of this version on it first, or use the version that wrote it"
        )
    return SqlQueries(reading_engine(address), SnapshotWatch(address))


def revision_of(url: str) -> str:
    address = Address(url)
    revision = _require_usable(address)
    if revision is None:
        raise StorageError(f"there is no database of ours in {address.shown}; start the service once")
    return revision


def said_of(url: str) -> str:
    address = Address(url)
    with _looking(address) as connection:
        (size,) = ask(connection, "SELECT pg_database_size(current_database())") or (0,)
        major, minor = divmod(connection.info.server_version, 10_000)
    return f"{address.shown} answers: PostgreSQL {major}.{minor}, {size / (1 << 20):.1f} MiB"


def services_of(url: str) -> list[KnownService]:
    """The active one first, then the others by their start."""
    address = Address(url)
    with _looking(address) as connection:
        if (ask(connection, "SELECT to_regclass('tuner_services')") or (None,))[0] is None:
            return []
        rows = connection.execute(_SERVICES, (2 * LEASE_S,)).fetchall()
    names = [f.name for f in fields(KnownService)]
    return [KnownService(**dict(zip(names, row, strict=True))) for row in rows]


@contextmanager
def _looking(address: Address) -> Iterator[psycopg.Connection[Any]]:
    """For a moment; what others lock is not waited for as long as they like."""
    with translated(), address.connect(lock_timeout=str(LOCK_WAIT_MS)) as connection:
        yield connection


def _require_usable(address: Address) -> str | None:
    """The revision of the schema; None where there is none yet."""
    with _looking(address) as connection:
        _require_server(connection)
        there = {
            name
            for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        } - _BESIDE
        if not there:
            _require_not_hidden(connection, address)
            return None
        if not there >= _OURS:
            raise StorageError(
                f"{address.shown} is a database of another program; create one of its own: createdb NAME"
            )
        row = ask(connection, "SELECT version_num FROM alembic_version")
    if row is None:
        raise StorageError(f"the database {address.shown} names no revision; restore it from a backup")
    if row[0] != tables.HEAD_REVISION and not _is_known(row[0]):
        raise StorageError(
            f"the database {address.shown} was written by a newer version (revision {row[0]}, this one knows up to "
            f"{tables.HEAD_REVISION}); install that version, or name another database with --db"
        )
    return str(row[0])


def _require_not_hidden(connection: psycopg.Connection[Any], address: Address) -> None:
    """A schema that came to stand before that of our tables, as one of the role's name does, is another database."""
    row = ask(
        connection,
        "SELECT relnamespace::regnamespace::text, current_schema()::text FROM pg_class "
        "WHERE oid = to_regclass('tuner_lease') AND relnamespace <> current_schema()::regnamespace",
    )
    if row is not None:
        raise StorageError(
            f"{address.shown} has the tables of a service in schema {row[0]}, and schema {row[1]}, which has none, "
            "comes first in the search path: a new, empty database would be made there; set the search path to the "
            f"schema that is meant: ALTER ROLE … SET search_path = {row[0]}"
        )


def _is_known(revision: str) -> bool:
    from tuner_service.storage import migrate  # a library that takes as long to import as the rest of a start

    return migrate.is_known(revision, folder=migrate.migrations_folder())


def _require_server(connection: psycopg.Connection[Any]) -> None:
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise StorageError(f"the PostgreSQL server has version {version // 10_000}; 13 is the oldest that is supported")
    row = ask(connection, "SELECT current_setting('server_encoding'), current_schema()")
    encoding, schema = row or (None, None)
    if encoding != "UTF8":
        raise StorageError(f"the database has the encoding {encoding}; create one with: createdb --encoding=UTF8 NAME")
    if schema is None:
        raise StorageError("no schema of the search path exists; create one, or set the role's search_path")


def _open_held(address: Address, clock: Clock, lease: Lease) -> PostgresqlStore:
    engine = writing_engine(address, name=lease.sessions, fence=lease.fence)
    _bring_up_to_date(engine, address)
    commits = CommitCount()
    writer = CountedWriter(engine, commits=commits, metrics=MetricCopy(), vacuum=Vacuum(address))
    try:
        with translated(), writer.begin() as connection:
            _require_sessions(connection, address, lease)
            _require_tables(connection, address)
            lineage = settle_lineage(connection, _fingerprint(connection))
            prune(connection, before=clock.now() - KEEP_UNNAMED_S)
            lease.acknowledged = newest_of(connection)
    except BaseException:
        writer.close()
        raise
    queries = SqlQueries(reading_engine(address), commits)
    return PostgresqlStore(writer=writer, queries=queries, lineage=lineage, clock=clock, lease=lease)


def _bring_up_to_date(engine: Engine, address: Address) -> None:
    """To the newest revision in one transaction, which is all or nothing."""
    revision = _require_usable(address)
    if revision == tables.HEAD_REVISION:
        return
    from tuner_service.storage import migrate

    with translated(), engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        migrate.upgrade(connection, folder=migrate.migrations_folder())
        connection.exec_driver_sql(_SPARED)
    if revision is not None:
        log.info("database_migrated", extra={"from_revision": revision})


def _require_tables(connection: Connection, address: Address) -> None:
    missing = sorted(tables.metadata.tables.keys() - set(inspect(connection).get_table_names()))
    if missing:
        raise StorageError(
            f"the database {address.shown} is damaged: table {', '.join(missing)} is missing; restore it from a backup"
        )


def _require_sessions(connection: Connection, address: Address, lease: Lease) -> None:
    """Two connections that are open at once, and are one session of the server, come out of a pool."""
    driver: Any = connection.connection.driver_connection
    if session_of(driver) == lease.session:
        raise StorageError(
            f"connections to {address.shown} come out of a pool that hands sessions of the server out by transaction; "
            "the lease belongs to a session, so name the server itself, or let the pool hand out whole sessions "
            "(pgbouncer: pool_mode = session)"
        )


def _fingerprint(connection: Connection) -> str:
    """The same while the server's data go on, also on a replica that became the server; another one for a copy."""
    row = connection.exec_driver_sql(
        "SELECT (SELECT system_identifier FROM pg_control_system()), oid, current_schema()::regnamespace::oid::int "
        "FROM pg_database WHERE datname = current_database()"
    ).one()
    return f"postgresql:{':'.join(map(str, row))}"
