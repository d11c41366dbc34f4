"""compare: experiments side by side, and how they differ."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.comparison import comparison_of, comparison_text
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, safe
from tuner_service.cli.output.tables import print_rows

MAX_COMPARED = 20  # more stand on no page


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        ids = list(dict.fromkeys(resolve_experiment(client, reference) for reference in arguments.references))
        if not 2 <= len(ids) <= MAX_COMPARED:
            raise CommandError(f"name 2 to {MAX_COMPARED} different experiments, not {len(ids)}", ExitCode.USAGE)
        compared = comparison_of([client.experiment(experiment_id) for experiment_id in ids])
    if arguments.output == "table":
        print(safe(comparison_text(compared)), end="")
    else:
        print_rows(compared, output=arguments.output, columns=())
    return ExitCode.OK
