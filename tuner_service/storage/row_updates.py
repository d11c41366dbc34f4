"""Rows that change a little and often: only what changed is written, so that no index is touched in vain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, Table, bindparam, update
from sqlalchemy.sql.dml import Insert, Update

from tuner_service.storage.prepared_writes import execute_many

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


class RowUpdates:
    """What the rows of one table hold, as far as this process, their only writer, wrote them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._keys = tuple(c.name for c in table.primary_key)
        self._rows: dict[tuple[Any, ...], Row] = {}  # the longest untouched first

    def put(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Insert them, or make the rows that are there equal to them."""
        whole: list[Row] = []
        parts: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        for row in rows:
            key = tuple(row[name] for name in self._keys)
            known = self._rows.pop(key, None)
            self._rows[key] = row
            if known is None:
                whole.append(row)
            elif changed := tuple(name for name, value in row.items() if value != known[name]):
                named = {f"key_{name}": value for name, value in zip(self._keys, key, strict=True)}
                parts[changed].append(named | {name: row[name] for name in changed})
        while len(self._rows) > ROWS_REMEMBERED:
            del self._rows[next(iter(self._rows))]
        if whole:
            execute_many(connection, upsert(self._table, connection.dialect.name), whole)
        for changed, values in parts.items():
            execute_many(connection, _update(self._table, changed), values)

    def forget(self) -> None:
        """What was written last was rolled back, or rows were deleted."""
        self._rows.clear()
