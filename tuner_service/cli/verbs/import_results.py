"""import: tells the tuner results from elsewhere."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.files.experiment_file import check_readable
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row

RESULTS_AT_ONCE = 5_000  # sent in one request; a file may have any number


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
        imported = 0
        for start in range(0, len(results), RESULTS_AT_ONCE):
            body = {"results": results[start : start + RESULTS_AT_ONCE], "outside_space": arguments.outside_space}
            imported += client.import_results(experiment_id, body)["imported"]
        _say_imported(experiment_id, {"imported": imported, "skipped": 0})
    return ExitCode.OK


def _say_imported(experiment_id: str, answer: Row) -> None:
    skipped = f"; {answer['skipped']} that lie outside its search space are left out" if answer["skipped"] else ""
    say(f"the tuner of {experiment_id} is told {answer['imported']} results{skipped}")
