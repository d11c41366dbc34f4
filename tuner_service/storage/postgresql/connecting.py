"""Connections to a PostgreSQL server: who waits how long for what, and what each of them may do.

Passwords come from the URL, from ``~/.pgpass``, ``PGPASSFILE`` or ``PGPASSWORD``, as with every client of PostgreSQL.
No text of this package contains one.
"""

from __future__ import annotations

import select as io
from typing import TYPE_CHECKING, Any, LiteralString

from sqlalchemy import Engine, NullPool, QueuePool, Text, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.compiler import compiles

from tuner_service.domain.errors import NotInstalledError, StorageError
from tuner_service.storage.faults import translated
from tuner_service.storage.postgresql.silence import HANGS, Silence

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

READERS = 16  # most reads at once; one more waits, and is refused after READER_WAIT_S
READER_WAIT_S = 30.0
# A transaction of a process that was stopped ends by itself, before the lease does. The server counts only from the
# answer to a single statement, not from that to several sent together: so whoever takes over ends the sessions, too.
IDLE_IN_TRANSACTION_MS = 2_000
LOCK_WAIT_MS = 10_000  # for another transaction, of an operator's program say
READ_LIMIT_MS = 120_000  # for one statement that reads
DEFAULTS = {
    "application_name": "tuner-service",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Of the writer, whatever the server or the role has been given: a migration, a removal and a copy take as long as they
# take, and rows that others lock are waited for and read as they are then.
ISOLATION = {"default_transaction_isolation": "read committed"}
WRITER = {"statement_timeout": "0", **ISOLATION}
# Of every connection: numbers come as text, which an older habit of servers cuts to 15 digits.
EXACT = {"extra_float_digits": "1"}
_SINCE = {"idle_session_timeout": 140_000, "transaction_timeout": 170_000}  # the same of newer servers
# Every transaction is ended by who began it; what is left of one is a connection that is gone.
ENGINE: dict[str, Any] = {"url": "postgresql+psycopg://", "use_native_hstore": False, "pool_reset_on_return": None}


@compiles(Text, "postgresql")
def _text_in_order_of_bytes(*_: Any, **__: Any) -> str:
    """Columns of text compare as in SQLite and in Python, whatever the database's own order is."""
    return 'TEXT COLLATE "C"'


class Address:
    """Where the database is. Never shown but through ``shown``, because the URL may hold a password."""

    def __init__(self, url: str) -> None:
        driver = _driver()
        scheme, _, rest = url.partition("://")
        try:
            self._parts = driver.conninfo.conninfo_to_dict(f"{scheme.removesuffix('+psycopg')}://{rest}")
        except driver.Error:
            # The driver's own message repeats the whole URL.
            raise StorageError(
                "the URL of the database makes no sense to PostgreSQL's library; write "
                "postgresql://USER@HOST:PORT/NAME, with signs other than letters and digits as %XX"
            ) from None

    @property
    def shown(self) -> str:
        named = {name: self._parts.get(name) for name in ("dbname", "host", "port")}
        name = named["dbname"] or "(of the user's name)"
        where = named["host"] or "the local socket"
        return f"{name} on {where}" + (f":{named['port']}" if named["port"] else "")

    def connect(self, *, name: str = "", **settings: str) -> psycopg.Connection[Any]:
        """A new connection that commits each statement by itself, with these settings of the server's.

        ``name``: by which the sessions of this service are found and ended.
        """
        own = {"client_encoding": "UTF8"} | ({"application_name": name} if name else {})
        connection: psycopg.Connection[Any] = _driver().connect(**(DEFAULTS | self._parts | own), autocommit=True)
        unlimited = {setting: "0" for setting, since in _SINCE.items() if connection.info.server_version >= since}
        for setting in (EXACT | settings | unlimited).items():
            connection.execute("SELECT set_config(%s, %s, false)", setting)
        return connection

    def answers(self) -> bool:
        """Whether the server lets somebody in, or says why not; it hangs where it says nothing."""
        driver = _driver()
        try:
            driver.connect(**(DEFAULTS | self._parts), autocommit=True).close()
        except driver.errors.ConnectionTimeout:
            return False
        except driver.Error:
            return True
        return True


def _driver() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as exc:
        raise NotInstalledError(
            "a PostgreSQL database needs the extra `postgresql`: pip install 'tuner-service[postgresql]'"
        ) from exc
    return psycopg


def writing_engine(address: Address, *, name: str, fence: Callable[[psycopg.Connection[Any]], None]) -> Engine:
    """One connection. ``fence`` is called in each of its transactions before anything else."""

    def connect() -> psycopg.Connection[Any]:
        connection = address.connect(
            name=name,
            idle_in_transaction_session_timeout=str(IDLE_IN_TRANSACTION_MS),
            lock_timeout=str(LOCK_WAIT_MS),
            **WRITER,
        )
        row = connection.execute("SHOW synchronous_commit").fetchone()
        if row is not None and row[0] in {"off", "local"}:  # an answer means: it is on the disk
            connection.execute("SET synchronous_commit = on")
        connection.autocommit = False
        return connection

    engine = create_engine(creator=connect, poolclass=NullPool, **ENGINE)
    event.listen(engine, "begin", lambda connection: fence(connection.connection.driver_connection))
    return engine


def reading_engine(address: Address) -> Engine:
    """Every transaction sees one state of the database and changes nothing. A server that hangs is not waited for."""
    driver, silence = _driver(), Silence(address.answers)
    levels = driver.IsolationLevel

    def connect() -> psycopg.Connection[Any]:
        if silence.is_on:
            raise driver.OperationalError(HANGS)
        try:
            connection = address.connect(
                statement_timeout=str(READ_LIMIT_MS),
                idle_in_transaction_session_timeout=str(READ_LIMIT_MS),
                lock_timeout=str(LOCK_WAIT_MS),
            )
        except driver.errors.ConnectionTimeout:
            silence.begin()
            raise
        silence.watch(connection, driver.OperationalError)
        connection.autocommit = False
        connection.isolation_level = levels.REPEATABLE_READ
        connection.read_only = True
        return connection

    engine = create_engine(
        creator=connect,
        poolclass=QueuePool,
        pool_size=READERS,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
        **ENGINE,
    )

    @event.listens_for(engine, "checkout")
    def require_alive(connection: psycopg.Connection[Any], _: ConnectionPoolEntry, __: PoolProxiedConnection) -> None:
        """A server that went away has said so on the socket: to look costs no question and answer."""
        if silence.is_on or connection.closed or _has_spoken(connection):
            raise DisconnectionError("the server ended the connection, or hangs")

    return engine


def _has_spoken(connection: psycopg.Connection[Any]) -> bool:
    poll = io.poll()
    poll.register(connection.fileno(), io.POLLIN | io.POLLHUP | io.POLLERR)
    return bool(poll.poll(0))


def ask(connection: psycopg.Connection[Any], query: LiteralString, *values: object) -> tuple[Any, ...] | None:
    """The first row."""
    with translated():
        row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
        return row
