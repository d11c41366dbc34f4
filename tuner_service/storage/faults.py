"""What a database says went wrong, as our errors: either try again later, or the operator has something to do."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tuner_service.domain.errors import StorageError, TunerServiceError, UnavailableError

_PASSING = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk refuses",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_BUSY: "another program holds the database",
    sqlite3.SQLITE_LOCKED: "another connection holds the table",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
# By SQLSTATE, or by its class: the longer one is the more exact.
_PASSING_STATES = {
    "53": "the server lacks resources",
    "53100": "the server's disk is full",
    "53200": "the server has no memory left",
    "53300": "the server takes no more connections",
    "58": "the server's system refuses",
    "25006": "the server takes no writes; it may be a standby of the active one",
    "40": "another transaction came in between",
    "55P03": "another transaction holds what is needed",
    "57014": "the server gave the statement up",
}
# The connection is gone, and with it the transaction; whether a COMMIT under way was carried out, nobody has said.
_LOST_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04")
_NO_TABLE = "42P01"
_MENDED_BY = {
    "42501": "give the service's role the right to create tables there, or name another database with --db",
}
# Of a connection that was not made the driver gives no state: a server that is away, and a name that it does not know.
_NOT_CONNECTED = ("connection failed", "connection is bad", "connection timeout")
_WHERE_TO_LOOK = (
    "; does the server run, does the database exist (createdb NAME), does the role, and is the password right "
    "(~/.pgpass, PGPASSFILE)?"
)


class ConnectionLostError(UnavailableError):
    """The server of the database went away, or it ended the connection."""


class TableMissingError(StorageError):
    """A table is not there: it was dropped, or the database was, and another one has its name."""


@contextmanager
def translated() -> Iterator[None]:
    """UnavailableError where room, access or patience may mend it; StorageError for the rest."""
    try:
        yield
    except PoolTimeoutError as exc:
        raise UnavailableError("too many readers of the database at once; try again") from exc
    except DBAPIError as exc:
        raise of_driver(exc.orig) from exc
    except _driver_errors() as exc:
        raise of_driver(exc) from exc
    except OverflowError as exc:
        raise StorageError(f"a number is too large for a column: {exc}") from exc


def _driver_errors() -> tuple[type[Exception], ...]:
    """What the drivers that are loaded raise; PostgreSQL's is imported only where it is used."""
    psycopg = sys.modules.get("psycopg")
    return (sqlite3.Error,) if psycopg is None else (sqlite3.Error, psycopg.Error)


def of_driver(error: BaseException | None) -> TunerServiceError:
    if error is not None and hasattr(error, "sqlstate"):
        return _of_postgresql(error)
    code = getattr(error, "sqlite_errorcode", None)
    meaning = None if code is None else _PASSING.get(code & 0xFF)
    if meaning is not None:
        return UnavailableError(f"the database cannot be used now: {meaning} ({error}); nothing was changed")
    return StorageError(f"the database refused: {error}; run `tuner doctor` on it")


def _of_postgresql(error: BaseException) -> TunerServiceError:
    state = getattr(error, "sqlstate", None) or ""
    said = _text_of(error)
    if (not state and _is_operational(error)) or state.startswith(_LOST_STATES):
        hint = _WHERE_TO_LOOK if said.startswith(_NOT_CONNECTED) else ""
        return ConnectionLostError(f"the database server cannot be reached now: {said}{hint}")
    if (meaning := _by_state(_PASSING_STATES, state)) is not None:
        return UnavailableError(f"the database cannot be used now: {meaning} ({said}); nothing was changed")
    todo = _by_state(_MENDED_BY, state) or "run `tuner doctor` on it"
    kind = TableMissingError if state == _NO_TABLE else StorageError
    return kind(f"the database refused: {said}; {todo}")


def _text_of(error: BaseException) -> str:
    """What the server says first; its details repeat values of rows."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return str(primary) if primary else " ".join(str(error).split())


def _is_operational(error: BaseException) -> bool:
    """Without a state, the driver says by the class alone that the connection is not there."""
    return any(cls.__name__ in {"OperationalError", "InterfaceError"} for cls in type(error).__mro__)


def _by_state(table: dict[str, str], state: str) -> str | None:
    return table.get(state, table.get(state[:2]))
