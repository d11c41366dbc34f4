"""Rows as a table of a parquet file: one column for each name that any row has, each with a type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

Row = dict[str, Any]
ROW_GROUP = 50_000  # rows of a parquet file that are held in memory
METRIC_KINDS = {
    "number": "int", "attempt": "int", "sequence": "int", "step": "int", "metric": "text", "value": "number",
    "first": "bool", "at": "time",
}  # fmt: skip
TRIAL_KINDS = {
    "number": "int", "id": "text", "status": "text", "reason": "text", "message": "text", "source": "text",
    "retry_of": "int", "value": "number", "attempts": "int", "created_at": "time", "started_at": "time",
    "ended_at": "time", "running_s": "number", "last.step": "int", "last.metrics": "json",
}  # fmt: skip


def write_table(rows: Callable[[], Iterable[Row]], stream: BinaryIO, *, kinds: Mapping[str, str] | None) -> None:
    """One column for each name that any row has; mixed values stand as JSON text."""
    import pyarrow
    import pyarrow.parquet

    kinds = kinds or find_kinds(rows(), TRIAL_KINDS)
    types = {
        "int": pyarrow.int64(), "number": pyarrow.float64(), "bool": pyarrow.bool_(), "text": pyarrow.string(),
        "json": pyarrow.string(), "time": pyarrow.timestamp("ms", tz="UTC"),
    }  # fmt: skip
    schema = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for group in _groups(rows()):
            columns = {
                name: pyarrow.array([convert(row.get(name), kind) for row in group], types[kind])
                for name, kind in kinds.items()
            }
            writer.write_table(pyarrow.table(columns, schema=schema))


def find_kinds(rows: Iterable[Row], known: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, set[str]] = {name: {kind} for name, kind in known.items()}
    for row in rows:
        for name, value in row.items():
            if name not in known:
                kinds = found.setdefault(name, set())
                if value is not None:
                    kinds.add("number" if name.startswith("final.") else _kind(value))
    return {name: _common(kinds) for name, kinds in found.items()}


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() if abs(value) < 2**63:
            return "int"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "json"


def _common(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {"int", "number"} and kinds:
        return "number"
    return "json" if kinds else "text"


def convert(value: Any, kind: str) -> Any:
    if value is None:
        return None
    match kind:
        case "number":
            return float(value)  # "NaN" and the infinities are texts until here
        case "json":
            return json.dumps(value, ensure_ascii=False)
        case "time":
            from datetime import datetime

            return datetime.fromisoformat(value)
        case _:
            return value


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in rows:
        group.append(row)
        if len(group) >= ROW_GROUP:
            yield group
            group = []
    if group:
        yield group
