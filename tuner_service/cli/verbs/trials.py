"""trials: the trials of an experiment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.output.repeating import repeated
from tuner_service.cli.output.tables import (
    ago_text,
    aligned_columns,
    duration_text,
    number_text,
    parameters_begin,
    print_rows,
)

TRIAL_COLUMNS = (
    "number", "status", "reason", "value", "last_value", "step", "attempts", "running_s", "silent_s", "parameters",
)  # fmt: skip
TRIAL_TITLES = (
    "NUMBER", "STATUS", "REASON", "VALUE", "LAST", "STEP", "ATTEMPTS", "RUNNING", "REPORTED", "PARAMETERS",
)  # fmt: skip
TRIAL_TEXTS: tuple[Callable[[Any], str], ...] = (
    str, str, str, number_text, number_text, number_text, str, duration_text, ago_text, parameters_begin,
)  # fmt: skip
TRIAL_RIGHT = (True, False, False, True, True, True, True, True, True, False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.metrics and arguments.output in {"table", "id"}:
        raise CommandError(
            "a table has no room for every report: add -o json, jsonl, csv or yaml, or write them to a file with "
            f"`tuner export {arguments.reference} --metrics FILE`",
            ExitCode.USAGE,
        )
    query: dict[str, Any] = {"status": arguments.status} if arguments.status else {}
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)

        def print_once() -> None:
            if arguments.output == "table":
                sys.stdout.write(trials_text(client.table(experiment_id, TRIAL_COLUMNS, query)))
                return
            wanted = {**query, "metrics": "true"} if arguments.metrics else query
            print_rows(client.trials(experiment_id, wanted), output=arguments.output, columns=())

        repeated(arguments, print_once)
    return ExitCode.OK


def trials_text(pages: Iterable[Sequence[Sequence[Any]]]) -> str:
    """``pages`` have the columns that TRIAL_COLUMNS names."""
    texts = [[title] for title in TRIAL_TITLES]
    for columns in pages:
        for text, to_text, column in zip(texts, TRIAL_TEXTS, columns, strict=True):
            text.extend(map(to_text, column))
    return aligned_columns(texts, right=TRIAL_RIGHT)
