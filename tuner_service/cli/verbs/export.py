"""export: everything an experiment found, in a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from trials.files import draft_of, put_in_place
from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row
from tuner_service.client import Client

FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
ROW_GROUP = 50_000  # rows of a parquet file that are held in memory


def run(arguments: argparse.Namespace) -> int:
    file = arguments.file or "-"
    to_standard_output = file == "-"
    form = arguments.output or FORMATS.get(Path(file).suffix.lower(), "csv")
    if form == "parquet":
        require_pyarrow()
        if to_standard_output:
            raise CommandError("a parquet file needs a name: tuner export EXPERIMENT FILE.parquet", ExitCode.USAGE)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        query = {"metrics": "true"} if arguments.metrics else {}
        if to_standard_output:
            for piece in client.export(experiment_id, {**query, "format": form}):
                sys.stdout.buffer.write(piece)
            return ExitCode.OK
        target = Path(file)
        write_export(client, experiment_id, target, form=form, metrics=arguments.metrics)
        say(f"wrote {target}, {target.stat().st_size} bytes")
    return ExitCode.OK


def write_export(client: Client, experiment_id: str, target: Path, *, form: str, metrics: bool) -> None:
    """The file is there when it is complete."""
    query = {"format": form} | ({"metrics": "true"} if metrics else {})
    if form == "parquet":
        _whole(target, lambda draft: _write_parquet(client, experiment_id, draft, metrics=metrics))
    else:
        _whole(target, lambda draft: _write(client.export(experiment_id, query), draft))


def _whole(target: Path, write: Callable[[Path], None]) -> None:
    """The file is there when it is complete; one that was there before stays until then."""
    draft = Path(draft_of(str(target)))
    try:
        write(draft)
        put_in_place(str(draft), str(target))
    finally:
        draft.unlink(missing_ok=True)


def _write(pieces: Iterable[bytes], draft: Path) -> None:
    with draft.open("wb") as stream:
        for piece in pieces:
            stream.write(piece)


# ── parquet ─────────────────────────────────────────────────────────────────────────────────────
def require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401  # only whether it is there
    except ImportError as exc:
        raise CommandError(
            "parquet files need pyarrow; install it with: pip install 'tuner-service[parquet]'", ExitCode.USAGE
        ) from exc


def _write_parquet(client: Client, experiment_id: str, draft: Path, *, metrics: bool) -> None:
    """Two readings: the first finds the columns and their types, the second writes."""
    query = {"format": "jsonl"} | ({"metrics": "true"} if metrics else {})

    def rows() -> Iterator[Row]:
        found = json_lines(client.export(experiment_id, query))
        return found if metrics else map(flat_trial, found)

    with draft.open("wb") as stream:
        write_table(rows, stream, kinds=METRIC_KINDS if metrics else None)


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


def json_lines(pieces: Iterable[bytes]) -> Iterator[Row]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def flat_trial(view: Row) -> Row:
    """As the table of the API has it."""
    last = view["last"] or {}
    flat = {name: value for name, value in view.items() if name not in {"parameters", "final", "last"}}
    flat |= _flattened(view["parameters"], "parameters.")
    flat |= {f"final.{name}": value for name, value in view["final"].items()}
    return {**flat, "last.step": last.get("step"), "last.metrics": last.get("metrics")}


def _flattened(parameters: Row, prefix: str) -> Row:
    flat: Row = {}
    for name, value in parameters.items():
        if isinstance(value, dict) and "_name" in value:
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
