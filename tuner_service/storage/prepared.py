"""Selects that are asked for again and again: compiled once, then handed to the driver as text.

Values come as the driver has them, without a conversion by the type of their column: ``mapping`` does what is needed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.sql.compiler import SQLCompiler

Row = dict[str, Any]
DIALECTS_REMEMBERED = 4


class Prepared:
    """``query`` with a ``bindparam`` for everything that changes; SQLAlchemy's own way costs ten times as much."""

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._columns = tuple(column.name for column in query.selected_columns)
        self._compiled = lru_cache(maxsize=DIALECTS_REMEMBERED)(self._compile)

    def rows(self, connection: Connection, **values: Any) -> list[Row]:
        """Every row found, its values by the names of their columns."""
        return [dict(zip(self._columns, row, strict=True)) for row in self.tuples(connection, **values)]

    def tuples(self, connection: Connection, **values: Any) -> list[tuple[Any, ...]]:
        """Every row found, its values in the order of the query's columns."""
        text, places, fixed = self._compiled(connection.dialect)
        values = fixed | values
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, values if places is None else [values[name] for name in places])
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def _compile(self, dialect: Dialect) -> tuple[str, list[str] | None, Row]:
        """The text, the order of its parameters where the driver takes them by place, and those that the query has."""
        compiled = self._query.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101  # which every select becomes
        return str(compiled), places_of(compiled), dict(compiled.params)


def places_of(compiled: SQLCompiler) -> list[str] | None:
    """The names of its parameters in their order; None where the driver takes them by name."""
    return list(compiled.positiontup or ()) if compiled.positional else None
