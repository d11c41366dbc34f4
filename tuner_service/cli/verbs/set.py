"""set: changes an experiment while it runs."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import print_object
from tuner_service.cli.typed import budget_of, given


def run(arguments: argparse.Namespace) -> int:
    body = given(arguments, ("name", "project", "note", "priority", "preemptible")) | budget_of(arguments)
    if arguments.tag is not None:
        body["tags"] = [tag for tag in arguments.tag if tag]
    if not body:
        raise CommandError(
            "name something to change: --trials, --parallel, --note, … (see tuner set --help)", ExitCode.USAGE
        )
    with connected(settings_of(arguments)) as client:
        view = client.change(resolve_experiment(client, arguments.reference), body)
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        say(f"experiment {view['id']} has changed: {', '.join([*body.pop('budget', {}), *body])}")
    return ExitCode.OK
