"""Arguments that were given and are empty."""

from __future__ import annotations

import argparse

from tuner_service.cli.output.exit_codes import CommandError, ExitCode

# A note or tag is removed so; of the others the service, or the verb itself, says more.
MAY_BE_EMPTY = {"note", "tag", "reference", "references", "value", "error", "metric", "set", "older_than"}


def refuse_empty(parsed: argparse.Namespace) -> None:
    """An empty file, folder or name is a variable of a shell that is not set; what would be done instead is a guess."""
    for action in parsed.own._actions:  # noqa: SLF001  # argparse has no public name for what a parser takes
        given = getattr(parsed, action.dest, None)
        if action.dest not in MAY_BE_EMPTY and (given == "" or (isinstance(given, list) and "" in given)):
            name = "/".join(action.option_strings) or action.metavar or action.dest
            raise CommandError(f"{name} is empty; is a variable of your shell not set?", ExitCode.USAGE)
