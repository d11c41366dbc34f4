"""watch: follows an experiment to its end."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.progress import follow
from tuner_service.local_service import require_service


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    with connected(settings) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        return follow(client, experiment_id, find=lambda: require_service(settings), timeout_s=arguments.timeout)
