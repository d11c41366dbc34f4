"""What a database says went wrong, as our errors: either try again later, or the operator has something to do."""

from __future__ import annotations

import sqlite3
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


@contextmanager
def translated() -> Iterator[None]:
    """UnavailableError where room, access or patience may mend it; StorageError for the rest."""
    try:
        yield
    except PoolTimeoutError as exc:
        raise UnavailableError("too many readers of the database at once; try again") from exc
    except DBAPIError as exc:
        raise of_driver(exc.orig) from exc
    except sqlite3.Error as exc:
        raise of_driver(exc) from exc
    except OverflowError as exc:
        raise StorageError(f"a number is too large for a column: {exc}") from exc


def of_driver(error: BaseException | None) -> TunerServiceError:
    code = getattr(error, "sqlite_errorcode", None)
    meaning = None if code is None else _PASSING.get(code & 0xFF)
    if meaning is not None:
        return UnavailableError(f"the database cannot be used now: {meaning} ({error}); nothing was changed")
    return StorageError(f"the database refused: {error}; run `tuner doctor` on it")
