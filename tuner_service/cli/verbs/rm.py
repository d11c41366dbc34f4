"""rm: deletes an ended experiment and all of it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.domain.wording import counted


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        if (
            not arguments.yes
            and sys.stdin is not None
            and sys.stdin.isatty()
            and not _is_wanted(client.experiment(experiment_id))
        ):
            say("nothing was deleted")
            return ExitCode.FAILURE
        is_gone = client.delete(experiment_id)
        say(f"experiment {experiment_id} is {'deleted' if is_gone else 'being deleted; its many rows go first'}")
    return ExitCode.OK


def _is_wanted(view: dict[str, Any]) -> bool:
    """Asks the person at the terminal. Scripts are not asked: their standard input is none."""
    trials = sum(view["counts"].values())
    say(f"experiment {view['id']} ({view['name']}, {view['status']}) has {counted(trials, 'trial')}")
    sys.stderr.write("delete it with all their metrics, checkpoints and logs? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
