"""Rows that change a little and often: only what changed is written, so that no index is touched in vain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Table, bindparam, update
from sqlalchemy.sql.dml import Insert, Update

from tuner_service.storage.prepared_writes import execute_many

T = TypeVar("T")
Row = dict[str, Any]

ROWS_REMEMBERED = 10_000  # of each table; one that was forgotten is written whole
STATEMENTS_REMEMBERED = 500


@cache
def dialect_insert(dialect: str) -> Callable[[Table], Any]:
    """The ``insert`` that knows ON CONFLICT. Only the dialect that is used is imported: the other takes 40 ms."""
    found: Callable[[Table], Any] = import_module(f"sqlalchemy.dialects.{dialect}").insert
    return found


@cache
def upsert(table: Table, dialect: str) -> Insert:
    """Insert, or replace every other column of the row that has the same key."""
    statement = dialect_insert(dialect)(table)
    keys = [c.name for c in table.primary_key]
    replaced = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in keys}
    result: Insert = statement.on_conflict_do_update(index_elements=keys, set_=replaced)
    return result


@lru_cache(maxsize=STATEMENTS_REMEMBERED)
def _update(table: Table, changed: tuple[str, ...]) -> Update:
    keys = [c == bindparam(f"key_{c.name}") for c in table.primary_key]
    return update(table).where(*keys).values({name: bindparam(name) for name in changed})


class RowUpdates(Generic[T]):
    """What the rows of one table hold, as far as this process, their only writer, wrote them.

    ``encode(value, None)`` gives every column of a value, ``encode(value, before)`` those that it has otherwise than
    the value ``before`` of the same key.
    """

    def __init__(self, table: Table, encode: Callable[[T, T | None], Row]) -> None:
        self._table, self._encode = table, encode
        self._keys = tuple(c.name for c in table.primary_key)
        # What was written, and by which parameters of an update its row is found; the longest untouched first.
        self._written: dict[Hashable, tuple[T, Row]] = {}

    def put(self, connection: Connection, values: Mapping[Any, T]) -> None:
        """Insert the rows of ``values``, by what identifies each, or make those that are there equal to them."""
        whole: list[Row] = []
        parts: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for key, value in values.items():
            written = self._written.pop(key, None)
            if written is None:
                row = self._encode(value, None)
                whole.append(row)
                found_by = {f"key_{name}": row[name] for name in self._keys}
            else:
                before, found_by = written
                fresh = self._encode(value, before)
                if fresh:
                    parts[tuple(fresh)].append(found_by | fresh)
            self._written[key] = value, found_by
        while len(self._written) > ROWS_REMEMBERED:
            del self._written[next(iter(self._written))]
        if whole:
            execute_many(connection, upsert(self._table, connection.dialect.name), whole)
        for changed, rows in parts.items():
            execute_many(connection, _update(self._table, changed), rows)

    def forget(self) -> None:
        """What was written last was rolled back, or rows were deleted."""
        self._written.clear()
