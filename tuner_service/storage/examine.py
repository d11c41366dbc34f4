"""Whether every row of a database can be read by the code that uses it; and if not, which one and what of it.

A file may be whole as SQLite sees it, and hold a row that was cut, or lack a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, inspect

from tuner_service.dispatcher.items import Queue
from tuner_service.domain.search_space import parse_search_space
from tuner_service.storage import mapping, tables
from tuner_service.storage.commits import touched_in
from tuner_service.storage.sql_queries import SqlQueries

TEXT_LIMIT = 200  # characters of a reason

Row = Mapping[Any, Any]
Check = Callable[[Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """``column`` is empty where the row, or the table, is wrong as a whole."""

    table: str
    key: tuple[Any, ...]
    column: str
    why: str

    def __str__(self) -> str:
        row = f", row {'/'.join(map(str, self.key))}" if self.key else ""
        column = f", column {self.column}" if self.column else ""
        return f"table {self.table}{row}{column}: {self.why}"


def bad_rows(queries: SqlQueries) -> Iterator[BadRow]:
    """Every one, table by table. Reads the whole database but for the content of blobs."""
    with queries.reading() as connection:
        missing = list(_missing(connection))
        yield from missing
        gone = {bad.table for bad in missing}
        for table in tables.metadata.sorted_tables:
            if table.name not in gone:
                yield from _of_table(connection, table)


def _missing(connection: Connection) -> Iterator[BadRow]:
    there = inspect(connection)
    names = set(there.get_table_names())
    for table in tables.metadata.sorted_tables:
        if table.name not in names:
            yield BadRow(table=table.name, key=(), column="", why="is missing")
            continue
        columns = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in columns:
                yield BadRow(table=table.name, key=(), column=column.name, why="is missing")


def _of_table(connection: Connection, table: Table) -> Iterator[BadRow]:
    checks = _checks().get(table.name, {})
    if not checks:
        return
    keys = [column.name for column in table.primary_key.columns]
    names = ", ".join(f'"{name}"' for name in dict.fromkeys([*keys, *checks]))
    # As text, without the columns' types: these would fail on a value, or make another of it, before it is looked at.
    query = f'SELECT {names} FROM "{table.name}"'  # noqa: S608  # names of ours
    # Some at a time: a server would send, and its library keep, the whole table.
    for row in connection.exec_driver_sql(query, execution_options={"stream_results": True}).mappings():
        key = tuple(row[name] for name in keys)
        for name, check in checks.items():
            why = _fault(check, row[name])
            if why:
                yield BadRow(table=table.name, key=key, column=name, why=why)


def _fault(check: Check, value: Any) -> str:
    try:
        check(value)
    except Exception as exc:  # noqa: BLE001  # whatever stands there must not end the examination
        shown = repr(value)
        return f"{type(exc).__name__}: {exc}"[:TEXT_LIMIT] + f"; it holds {shown[:60]}{'…' if len(shown) > 60 else ''}"
    return ""


def _checks() -> dict[str, dict[str, Check]]:
    """By table and column, what reads it."""
    return {
        "experiments": {**mapping.EXPERIMENTS.decoders, "spec": _spec},
        "queue_cursors": {"queue": Queue, "line": int},
        "search_space_revisions": {**mapping.REVISIONS.decoders, "search_space": _space},
        "trials": mapping.TRIALS.decoders | mapping.RUNGS.decoders,
        "decisions": mapping.DECISIONS.decoders,
        "attempts": mapping.ATTEMPTS.decoders,
        "journal": {**mapping.JOURNAL.decoders, "queues": mapping.QUEUES_OF_BITS.__getitem__},
        "metrics": {"values": _metric_values, "objective": mapping.float_out, "at": float, "first": bool},
        "checkpoints": mapping.CHECKPOINTS.decoders,
        "algorithm_snapshots": {**mapping.SNAPSHOTS.decoders, "state": json.loads},
        "idempotency_keys": mapping.KEYS.decoders,
        "quota_groups": mapping.QUOTA_GROUPS.decoders,
        "tokens": mapping.TOKENS.decoders,
        "sessions": mapping.SESSIONS.decoders,
        "commits": {"touched": touched_in},
    }


def _spec(text: str) -> None:
    parse_search_space(mapping.spec_out(text).search_space)


def _space(text: str) -> None:
    parse_search_space(json.loads(text))


def _metric_values(text: str) -> None:
    values = json.loads(text)
    if not isinstance(values, dict) or not all(isinstance(value, int | float) for value in values.values()):
        raise ValueError("must be an object of numbers")
