"""pause: no new trials; those running go on."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        view = client.pause(resolve_experiment(client, arguments.reference))
        say(f"experiment {view['id']} is paused; {view['counts'].get('running', 0)} running trials go on")
    return ExitCode.OK
