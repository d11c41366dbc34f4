"""clone: starts an experiment like another."""

from __future__ import annotations

import argparse
import secrets

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.cli.output.tables import print_object
from tuner_service.cli.typed import budget_of, given


def run(arguments: argparse.Namespace) -> int:
    body = given(arguments, ("name", "seed")) | budget_of(arguments)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        view = client.clone(experiment_id, body, key=secrets.token_hex(16))
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        say(f"started {view['name']} like {experiment_id}, with seed {view['seed']}; tuner watch {view['id']}")
    return ExitCode.OK
