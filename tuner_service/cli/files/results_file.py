"""Results in a file: what `tuner export` wrote, or a table or list of parameters and values from anywhere."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tuner_service.cli.files.experiment_file import MAX_TEXT, name_of, read_text
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.output.tables import Row
from tuner_service.cli.typed import metric_of, value_of

PARAMETERS = "parameters."  # begins the columns of parameters in an exported table
RESULTS = ("succeeded", "early_stopped", "failed")
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # that spreadsheets write, too
SPECIAL_NUMBERS = ("NaN", "Infinity", "-Infinity")


def read_results(file: str) -> tuple[list[Row], int]:
    """The results as the API takes them, and how many rows hold none because their trial has not ended so."""
    text = read_text(file, newline="")
    if file.endswith(".csv") or (file == "-" and text[:1] not in {"[", "{"}):
        rows = _table(file, text)
    else:
        rows = _objects(file, text)
    results = [_result(file, place, row) for place, row in enumerate(rows, start=1)]
    kept = [result for result in results if result is not None]
    return kept, len(results) - len(kept)


def _result(file: str, place: int, row: Row) -> Row | None:
    """None for a trial without an end that teaches anything."""
    status = row.get("status")
    if status and status not in RESULTS:
        return None
    value = row.get("value")
    if isinstance(value, str) and value not in SPECIAL_NUMBERS:
        raise CommandError(f"{file}, result {place}: the value {value!r} is no number", ExitCode.USAGE)
    if value is None and status != "failed":
        raise CommandError(f"{file}, result {place}: it has no value", ExitCode.USAGE)
    result: Row = {"parameters": row["parameters"], "value": value}
    if status:
        result["status"] = status
    step = row.get("step", (row.get("last") or {}).get("step"))
    if status == "early_stopped" and isinstance(step, int):
        result["step"] = step
    return result


# ── objects ─────────────────────────────────────────────────────────────────────────────────────
def _objects(file: str, text: str) -> list[Row]:
    try:
        if text.lstrip().startswith("["):
            found = json.loads(text, parse_constant=str)
        else:
            found = [json.loads(line, parse_constant=str) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{file} is neither csv nor json nor jsonl: {exc}", ExitCode.USAGE) from exc
    for place, row in enumerate(found, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("parameters"), dict):
            message = f'{file}, result {place}: it should be an object like {{"parameters": {{…}}, "value": 0.5}}'
            raise CommandError(message, ExitCode.USAGE)
    return list(found)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────
def _table(file: str, text: str) -> list[Row]:
    csv.field_size_limit(MAX_TEXT)  # a parameter may be a long text
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns = list(reader.fieldnames or ())
    if not columns:
        raise CommandError(f"{name_of(file)} has no results: it is empty", ExitCode.USAGE)
    if "value" not in columns and (sign := _separator(columns)):
        message = f"separates its columns by {sign}; save it with commas between them, and points before decimals"
        raise CommandError(f"{name_of(file)} {message}", ExitCode.USAGE)
    if "value" not in columns:
        raise CommandError(f"{name_of(file)} has no column value; it has {', '.join(columns)}", ExitCode.USAGE)
    doubled = [name for name, count in Counter(columns).items() if count > 1 and name]
    if doubled:
        raise CommandError(f"{name_of(file)} has several columns {doubled[0]!r}", ExitCode.USAGE)
    is_exported = any(name.startswith(PARAMETERS) for name in columns)
    return [_table_row(_whole(file, place, row), is_exported=is_exported) for place, row in enumerate(reader, start=1)]


def _whole(file: str, place: int, row: dict[Any, Any]) -> dict[str, Any]:
    """CommandError for cells beyond the columns: those before them are not what the heading says, either."""
    if any(row.get(None) or ()):
        message = "it has more cells than there are columns; are decimals written with commas?"
        raise CommandError(f"{name_of(file)}, result {place}: {message}", ExitCode.USAGE)
    return row


def _separator(columns: list[str]) -> str:
    """That of a spreadsheet of another country, "" where the heading shows none.

    It is not read as it is: its decimals have commas more often than not, and would be taken for text.
    """
    heading = ",".join(columns)
    if heading.startswith("sep="):
        return "semicolons" if heading[4:5] == ";" else "another sign"
    for sign, name in SEPARATORS.items():
        if "value" in (column.strip(' "') for column in heading.split(sign)):
            return name
    return ""


def _table_row(row: dict[str, Any], *, is_exported: bool) -> Row:
    """In a table that was not exported here, every column but the value is a parameter."""
    cells = {name: text for name, text in row.items() if name is not None and text}
    if is_exported:
        named = {name.removeprefix(PARAMETERS): cells[name] for name in cells if name.startswith(PARAMETERS)}
        rest: Row = {"status": cells.get("status"), "step": value_of(cells.get("last.step", "null"))}
    else:
        named = {name: text for name, text in cells.items() if name != "value"}
        rest = {}
    parameters = nested({name: value_of(text) for name, text in named.items()})
    return {"parameters": parameters, "value": metric_of(cells["value"]) if "value" in cells else None, **rest}


def nested(flat: Row) -> Row:
    """``layer._name`` and ``layer.kernel`` as one parameter; any other name with a dot stays as it is."""
    built: Row = {}
    for name, value in flat.items():
        branch = next((head for head in _heads(name) if f"{head}._name" in flat), None)
        if branch is None:
            built[name] = value
        elif branch not in built:
            inside = {other.removeprefix(f"{branch}."): flat[other] for other in flat if other.startswith(f"{branch}.")}
            built[branch] = nested(inside)
    return built


def _heads(name: str) -> Iterable[str]:
    """Everything before a dot, the shortest first."""
    return (name[:place] for place, character in enumerate(name) if character == ".")
