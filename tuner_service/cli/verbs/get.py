"""get: what a trial left, into a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner_service.assets.fetching import get_asset
from tuner_service.cli.context import connected, is_trial_number, resolve_experiment, settings_of
from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.client import Client

BEST = "best"


def run(arguments: argparse.Namespace) -> int:
    target = Path(arguments.folder).expanduser()
    query = {} if arguments.checkpoint is None else {"checkpoint": arguments.checkpoint}
    with connected(settings_of(arguments)) as client:
        experiment_id, number = _trial(client, arguments.reference)
        left = client.trial_files(experiment_id, number, query)
        with ByteBar() as bar:
            get_asset(client, left["asset"], target, told=bar.told)
    output = left["output"]
    say(f"what trial {experiment_id}/{number} left lies in {target}")
    if output is not None and not output["complete"]:
        say(f"careful: that is not all that it left: {output['message']}")
    return ExitCode.OK


def _trial(client: Client, reference: str) -> tuple[str, int]:
    """Of EXPERIMENT/NUMBER or EXPERIMENT/best."""
    experiment, slash, number = reference.rpartition("/")
    if not slash or not experiment or not (number == BEST or is_trial_number(number)):
        message = f"{reference!r:.200} names no trial; write EXPERIMENT/NUMBER or EXPERIMENT/best"
        raise CommandError(message, ExitCode.USAGE)
    experiment_id = resolve_experiment(client, experiment)
    if number != BEST:
        return experiment_id, int(number)
    best = client.experiment(experiment_id)["best"]
    if best is None:
        raise CommandError(f"experiment {experiment_id} has no best trial yet", ExitCode.NOT_FOUND)
    return experiment_id, int(best["number"])
