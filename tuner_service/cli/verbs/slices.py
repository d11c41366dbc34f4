"""slices: the objective along each parameter."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.analyses import slices_text
from tuner_service.cli.output.pictures import print_or_draw


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "slices")
    return print_or_draw(arguments, "slices", view, slices_text)
