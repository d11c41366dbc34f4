"""pareto: the front of several objectives."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.analyses import pareto_text
from tuner_service.cli.output.pictures import print_or_draw


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "pareto")
    return print_or_draw(arguments, "pareto", view, pareto_text)
