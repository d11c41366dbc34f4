"""Statements of the writer that come with every step: compiled once, then handed to the driver as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import Insert, Update

from tuner_service.storage.prepared import Row, places_of

STATEMENTS_REMEMBERED = 500


def execute_many(connection: Connection, statement: Insert | Update, rows: Sequence[Row]) -> None:
    """``statement``, an object that is used again, for each of ``rows``, which have the same names.

    Values are handed on as they are, without a conversion by the type of their column: ``mapping`` does what is
    needed. An error is the driver's own.
    """
    text, places = _compiled(statement, tuple(rows[0]), connection.dialect)
    cursor = connection.connection.cursor()
    try:
        cursor.executemany(text, rows if places is None else [[row[name] for name in places] for row in rows])
    finally:
        cursor.close()


@lru_cache(maxsize=STATEMENTS_REMEMBERED)
def _compiled(statement: Insert | Update, names: tuple[str, ...], dialect: Dialect) -> tuple[str, list[str] | None]:
    """The text, and the order of its parameters where the driver takes them by place."""
    columns = list(names) if isinstance(statement, Insert) else None
    compiled = statement.compile(dialect=dialect, column_keys=columns)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101  # which both become
    return str(compiled), places_of(compiled)
