"""A whole database moved into another one, of whichever kind: every row compared before anything of it is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Boolean, Connection, Table, select

from tuner_service.domain.errors import StorageError
from tuner_service.storage import tables
from tuner_service.storage.faults import translated
from tuner_service.storage.mapping import float_in
from tuner_service.storage.sql_store import SqlStore

ROWS_AT_ONCE = 2_000
_OF_THE_DATABASE = frozenset({"meta"})  # a copy has a lineage of its own

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """``digest``: of every value of every row, in the order of the key; the same in both."""

    name: str
    rows: int
    digest: str


def copy_database(source: SqlStore, target: SqlStore, done: Callable[[CopiedTable], None]) -> None:
    """All or nothing. StorageError where the target holds rows already, or what it holds then is not the same.

    Both are held by this process, so that nobody else writes meanwhile.
    """
    with source.queries.reading() as reading, translated(), target.begin() as writing:
        for connection in (reading, writing):
            _lift_limits(connection)
        for table in _copied_tables():
            if writing.execute(select(table).limit(1)).first() is not None:
                raise StorageError(f"the target holds rows already (table {table.name}); name an empty database")
        for table in _copied_tables():
            done(_copy(reading, writing, table))


def _copied_tables() -> list[Table]:
    """Those that others refer to come first."""
    return [table for table in tables.metadata.sorted_tables if table.name not in _OF_THE_DATABASE]


def _copy(reading: Connection, writing: Connection, table: Table) -> CopiedTable:
    add = _adding(writing, table)
    given = _Sum()
    rows = _rows(reading, table)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        given.add(some)
        add(some)
    found = _Sum()
    rows = _rows(writing, table)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        found.add(some)
    if found.text != given.text:
        raise StorageError(
            f"table {table.name} is not the same in the copy ({given.text} and {found.text}); nothing was kept: "
            "`tuner doctor` on the source names rows that are damaged"
        )
    return CopiedTable(name=table.name, rows=given.count, digest=given.digest)


class _Sum:
    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.count += 1
            self._hash.update(repr(row).encode("utf-8", "surrogatepass"))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def text(self) -> str:
        return f"{self.count} rows, {self.digest[:16]}"


def _rows(connection: Connection, table: Table) -> Iterator[Row]:
    """In the order of the key, with the same values whichever database they come from."""
    query = select(table).order_by(*table.primary_key.columns)
    readers = [_reader(column.type) for column in table.columns]
    found = connection.execute(query, execution_options={"stream_results": True, "max_row_buffer": ROWS_AT_ONCE})
    for row in found:
        yield tuple(None if value is None else read(value) for read, value in zip(readers, row, strict=True))


def _reader(kind: object) -> Callable[[Any], Any]:
    match kind:
        case tables.Number():
            return float
        case Boolean():
            return bool
        case _:
            return _same


def _same(value: Any) -> Any:
    return value


# ── what the two databases differ in ────────────────────────────────────────────────────────────
def _lift_limits(connection: Connection) -> None:
    """The server ends transactions that pause; here all rows of another database are read or compared in between."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")


def _adding(connection: Connection, table: Table) -> Callable[[Sequence[Row]], None]:
    if connection.dialect.name == "postgresql":
        from tuner_service.storage.postgresql.row_copy import copy_rows

        return lambda rows: copy_rows(connection, table, rows)
    names = [column.name for column in table.columns]
    numbers = [isinstance(column.type, tables.Number) for column in table.columns]

    def insert_rows(rows: Sequence[Row]) -> None:
        values = [
            dict(zip(names, (float_in(v) if n else v for v, n in zip(row, numbers, strict=True)), strict=True))
            for row in rows
        ]
        connection.execute(table.insert(), values)

    return insert_rows
