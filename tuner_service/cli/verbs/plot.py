"""plot: a picture of an experiment, drawn by the service."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say

FORMS = ("png", "svg")


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        path = Path(arguments.file or f"{experiment_id}-{arguments.kind}.png")
        form = path.suffix.removeprefix(".").lower()
        if form not in FORMS:
            raise CommandError(f"{path} should end in .png or .svg", ExitCode.USAGE)
        data = client.plot(experiment_id, arguments.kind, form)
    try:
        path.write_bytes(data)
    except OSError as exc:
        raise CommandError(f"{path} cannot be written: {exc.strerror}", ExitCode.FAILURE) from exc
    say(f"written to {path}")
    return ExitCode.OK
