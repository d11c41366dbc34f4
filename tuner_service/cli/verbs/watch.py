"""watch: follows an experiment to its end."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.progress import follow


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        return follow(client, resolve_experiment(client, arguments.reference), timeout_s=arguments.timeout)
