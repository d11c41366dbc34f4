"""show: one experiment, or one trial."""

from __future__ import annotations

import argparse
import sys

from tuner_service.cli.context import connected, resolve_experiment, settings_of, split_trial
from tuner_service.cli.output.descriptions import experiment_text, trial_text
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.output.repeating import repeated
from tuner_service.cli.output.tables import (
    print_object,
)

FAILURES_EXPLAINED = 5  # failed trials from which on `show` asks which parameter makes them fail


def run(arguments: argparse.Namespace) -> int:
    reference, number = split_trial(arguments.reference)
    if arguments.resources and number is None:
        raise CommandError(f"--resources is of one trial: tuner show {reference}/NUMBER --resources", ExitCode.USAGE)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, reference)
        if arguments.code_changes:
            sys.stdout.write(client.code_changes(experiment_id).decode(errors="replace"))
            return ExitCode.OK

        def print_once() -> None:
            if number is None:
                view = client.experiment(experiment_id)
                if view["counts"].get("failed", 0) >= FAILURES_EXPLAINED:
                    view["failures"] = client.analysis(experiment_id, "failures")
                print_object(view, output=arguments.output, text=experiment_text)
            else:
                view = client.trial(experiment_id, number)
                view["checkpoints"] = client.checkpoints(experiment_id, number)
                if arguments.resources:  # only where one asks: its agent answers, not the database
                    view["resources"] = client.resources(experiment_id, number, {})
                print_object(view, output=arguments.output, text=trial_text)

        repeated(arguments, print_once)
    return ExitCode.OK
