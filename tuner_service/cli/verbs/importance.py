"""importance: how much each parameter matters."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.analyses import importance_text
from tuner_service.cli.output.pictures import print_or_draw


def run(arguments: argparse.Namespace) -> int:
    query = {"metric": arguments.metric} if arguments.metric else {}
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "importance", query)
    return print_or_draw(arguments, "importance", view, importance_text)
