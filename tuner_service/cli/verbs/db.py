"""db: where the database is, which revision it has, bringing it up to date, and whether it is whole."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner_service.cli.context import settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.config import Settings, without_password


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    match arguments.action:
        case "path":
            print(settings.database_file or without_password(settings.db))
        case "revision":
            from tuner_service.storage.sqlite_file import inspect

            print(inspect(_file(settings)))
        case "upgrade":
            return _upgrade(settings)
        case _:
            return _check(settings)
    return ExitCode.OK


def _upgrade(settings: Settings) -> int:
    """Opening it as a service does migrates it, with a copy kept beside it."""
    from tuner_service.clock import SystemClock
    from tuner_service.storage.engine import open_store
    from tuner_service.storage.sqlite_file import inspect

    file = _file(settings)
    before = inspect(file)
    open_store(file, SystemClock()).close()
    after = inspect(file)
    say(f"{file} has revision {after} already" if before == after else f"{file}: revision {before} → {after}")
    return ExitCode.OK


def _check(settings: Settings) -> int:
    from tuner_service.storage.sqlite_file import check_integrity

    file = _file(settings)
    findings = check_integrity(file)
    for finding in findings:
        say(finding)
    say(f"{file} is damaged; restore it from a backup" if findings else f"{file} is whole")
    return ExitCode.FAILURE if findings else ExitCode.OK


def _file(settings: Settings) -> Path:
    file = settings.database_file
    if file is None:
        raise CommandError(f"{without_password(settings.db)} is no file; use the tools of its database", ExitCode.USAGE)
    if not file.exists():
        raise CommandError(f"there is no database {file}", ExitCode.NOT_FOUND)
    return file
