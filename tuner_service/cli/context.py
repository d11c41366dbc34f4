"""What every command needs: the settings, and a service to talk to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.client import Client, ProblemError
from tuner_service.config import SETTINGS, Settings, resolve_settings
from tuner_service.local_service import require_service
from tuner_service.service.private import looks_like_a_home

LAST = "@last"
MAX_NAMED = 5  # candidates that an error names
MAX_DIGITS = 18  # of a trial's number; one of thousands Python does not even read


def settings_of(arguments: argparse.Namespace) -> Settings:
    flags = {setting.name: getattr(arguments, setting.name, None) for setting in SETTINGS if setting.flag}
    settings = resolve_settings(flags, environment=os.environ, folder=Path.cwd())
    # A database named on this command line says more than a home that was set once and for all.
    if settings.origins["db"] == "flag" and settings.origins["home"] != "flag" and settings.database_file:
        return replace(settings, home=home_around(settings.database_file))
    return settings


def home_around(file: Path) -> Path:
    """The home of a database file that was copied somewhere: its folder if it looks like one, else one beside it."""
    if os.path.isdir(file):  # noqa: PTH112  # False also where it may not be looked at
        raise CommandError(f"--db names a database file, not the folder {file}", ExitCode.USAGE)
    if file.name == "tuner.db" and looks_like_a_home(file.parent):
        return file.parent
    return file.with_name(f"{file.stem}-home")


def database_of(settings: Settings) -> str | Path:
    """What a command opens that reads the database itself. CommandError where there is no such file."""
    file = settings.database_file
    if file is None:
        return settings.db
    if not file.exists():
        raise CommandError(f"there is no database {file}; name another home with --home", ExitCode.NOT_FOUND)
    return file


@contextmanager
def connected(settings: Settings) -> Iterator[Client]:
    """UnreachableError, with what to do, when no service runs."""
    client = require_service(settings)
    try:
        yield client
    finally:
        client.close()


def resolve_experiment(client: Client, reference: str) -> str:
    """The id that ``reference`` names: an id, a unique prefix, a name, or @last."""
    if not reference:  # every id begins with it: of one experiment it would be the prefix
        raise CommandError(
            "the experiment is an empty text; is a variable of your shell not set? `tuner ps` lists ids",
            ExitCode.USAGE,
        )
    if reference != LAST:
        try:
            return str(client.experiment(reference)["id"])
        except ProblemError as exc:
            if exc.status != 404:
                raise
    experiments = client.experiments()
    if reference == LAST:
        if not experiments:
            raise CommandError("there is no experiment yet; start one with `tuner start FILE`", ExitCode.NOT_FOUND)
        return str(experiments[0]["id"])
    found = [e for e in experiments if e["name"] == reference]
    found = found or [e for e in experiments if e["id"].startswith(reference)]
    if not found:
        raise CommandError(
            f"there is no experiment {reference!r}; `tuner ps` lists those there are", ExitCode.NOT_FOUND
        )
    if len(found) > 1:
        named = ", ".join(f"{e['id']} ({e['name']}, {e['created_at']})" for e in found[:MAX_NAMED])
        raise CommandError(f"{reference!r} names {len(found)} experiments: {named}; use an id", ExitCode.USAGE)
    return str(found[0]["id"])


def split_trial(reference: str) -> tuple[str, int | None]:
    """("8f3k2", 12) of "8f3k2/12"; None where no trial is named."""
    experiment, slash, number = reference.rpartition("/")
    if not slash:
        return reference, None
    if not experiment or not is_trial_number(number):
        raise CommandError(
            f"{reference!r:.200} names no trial; write EXPERIMENT/NUMBER, such as 8f3k2/12", ExitCode.USAGE
        )
    return experiment, int(number)


def is_trial_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS


def resolve_trial(client: Client, reference: str) -> tuple[str, int]:
    experiment, number = split_trial(reference)
    if number is None:
        raise CommandError(f"{reference!r} names no trial; write EXPERIMENT/NUMBER, such as 8f3k2/12", ExitCode.USAGE)
    return resolve_experiment(client, experiment), number
