"""import: tells the tuner results from elsewhere."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.files.experiment_file import check_readable
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row
from tuner_service.client import Client, ProblemError

RESULTS_AT_ONCE = 5_000  # sent in one request; a file may have any number
_PLACE = re.compile(r"(?<=^/results/)[0-9]+")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.file is None) == (arguments.experiment is None):
        raise CommandError("name either a file of results, or an earlier experiment with --experiment", ExitCode.USAGE)
    results: list[Row] = []
    if arguments.file is not None:
        from tuner_service.cli.files.results_file import read_results

        check_readable(arguments.file)
        results, left_out = read_results(arguments.file)
        if left_out:
            say(f"{left_out} rows without a result (running, waiting or canceled trials) are left out")
        if not results:
            raise CommandError(f"{arguments.file} holds no results", ExitCode.USAGE)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        if arguments.experiment is not None:
            source = resolve_experiment(client, arguments.experiment)
            _say_imported(experiment_id, client.import_results(experiment_id, {"experiment": source}))
            return ExitCode.OK
        _import(client, experiment_id, results, outside_space=arguments.outside_space)
    return ExitCode.OK


def _import(client: Client, experiment_id: str, results: list[Row], *, outside_space: bool) -> None:
    """In portions. Whatever ends it says how many are told, which are not to be told twice."""
    imported = 0
    try:
        for start in range(0, len(results), RESULTS_AT_ONCE):
            body = {"results": results[start : start + RESULTS_AT_ONCE], "outside_space": outside_space}
            try:
                imported += client.import_results(experiment_id, body)["imported"]
            except ProblemError as exc:
                raise _of_file(exc, start) from exc
    except BaseException:
        if imported:
            say(f"the first {imported} results were told; leave them out when you import the others")
        raise
    _say_imported(experiment_id, {"imported": imported, "skipped": 0})


def _of_file(exc: ProblemError, start: int) -> ProblemError:
    """With the places in the whole file, of which a portion was sent."""
    errors = [
        {**error, "pointer": _PLACE.sub(lambda place: str(int(place[0]) + start), str(error.get("pointer", "")))}
        for error in exc.problem.get("errors", ())
    ]
    return replace(exc, problem={**exc.problem, **({"errors": errors} if errors else {})})


def _say_imported(experiment_id: str, answer: Row) -> None:
    skipped = f"; {answer['skipped']} that lie outside its search space are left out" if answer["skipped"] else ""
    say(f"the tuner of {experiment_id} is told {answer['imported']} results{skipped}")
