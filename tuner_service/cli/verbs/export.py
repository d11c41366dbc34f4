"""export: everything an experiment found, in a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trials.files import draft_of, put_in_place
from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row
from tuner_service.client import MADE_AS_A_WHOLE, Client
from tuner_service.domain.values import flattened

FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
           ".log": "optuna"}  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    file = arguments.file or "-"
    to_standard_output = file == "-"
    form = arguments.output or FORMATS.get(Path(file).suffix.lower(), "csv")
    if form in MADE_AS_A_WHOLE and to_standard_output:
        raise CommandError(f"{form} needs the name of a file: tuner export EXPERIMENT FILE", ExitCode.USAGE)
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
    _whole(target, lambda draft: _write(client.export(experiment_id, query), draft))


def _whole(target: Path, write: Callable[[Path], None]) -> None:
    """The file is there when it is complete; one that was there before stays until then."""
    draft = Path(draft_of(str(target)))
    try:
        write(draft)
        put_in_place(str(draft), str(target))
    except OSError as exc:
        raise CommandError(f"{target} cannot be written: {exc.strerror or exc}") from exc
    finally:
        draft.unlink(missing_ok=True)


def _write(pieces: Iterable[bytes], draft: Path) -> None:
    with draft.open("wb") as stream:
        for piece in pieces:
            stream.write(piece)


def json_lines(pieces: Iterable[bytes]) -> Iterator[Row]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def flat_trial(view: Row) -> Row:
    """As the table of the API has it."""
    last = view["last"] or {}
    flat = {name: value for name, value in view.items() if name not in {"parameters", "final", "last"}}
    flat |= flattened(view["parameters"], "parameters.")
    flat |= {f"final.{name}": value for name, value in view["final"].items()}
    return {**flat, "last.step": last.get("step"), "last.metrics": last.get("metrics")}
