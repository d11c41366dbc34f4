"""secret: values that trials are given as variables, and that stand nowhere but in files of their owner."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from pathlib import Path

from trials.files import write_atomically
from trials.wire.texts import text_fault
from trials.wire.variables import NAME_OF_SECRET
from tuner_service.cli.context import settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, print_rows
from tuner_service.config import Settings

MAX_SECRET_BYTES = 32 << 10  # beyond: refused; a variable of a process has little more room
COLUMNS = (
    Column(title="SECRET", text=lambda s: s["id"]),
    Column(title="BYTES", text=lambda s: str(s["bytes"]), right=True),
)


def run(arguments: argparse.Namespace) -> int:
    """Works on the home folder itself: a value never travels."""
    settings = settings_of(arguments)
    if settings.url:
        raise CommandError(
            "secrets are files of the home folder; run this on its machine, without a url", ExitCode.USAGE
        )
    if (arguments.action == "ls") != (arguments.name is None):
        raise CommandError(
            "`tuner secret set NAME` and `tuner secret rm NAME` take a name; ls takes none", ExitCode.USAGE
        )
    if arguments.action == "ls":
        print_rows(_rows(settings), output=arguments.output, columns=COLUMNS)
        return ExitCode.OK
    if not re.fullmatch(NAME_OF_SECRET, arguments.name):
        raise CommandError(f"{arguments.name!r} is no name of letters, digits, '.', '_' and '-'", ExitCode.USAGE)
    file = settings.secrets / arguments.name
    if arguments.action == "rm":
        _remove(file)
    else:
        _write(file, _value(arguments.name))
        say(f"secret {arguments.name} is set; trials get it by environment: {{VARIABLE: {{secret: {arguments.name}}}}}")
    return ExitCode.OK


def _rows(settings: Settings) -> list[Row]:
    if not settings.secrets.is_dir():
        return []
    files = sorted(file for file in settings.secrets.iterdir() if re.fullmatch(NAME_OF_SECRET, file.name))
    return [{"id": file.name, "bytes": file.stat().st_size} for file in files]


def _value(name: str) -> str:
    """Never an argument, which other users see. One line end behind it is not part of it."""
    value = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.read(MAX_SECRET_BYTES + 1)
    value = value.removesuffix("\n").removesuffix("\r")
    if text_fault(value):
        raise CommandError(
            "a secret is text in UTF-8, without zero bytes; encode others, as with base64", ExitCode.USAGE
        )
    if not value or len(value.encode()) > MAX_SECRET_BYTES:
        raise CommandError(f"a secret has 1 to {MAX_SECRET_BYTES} bytes", ExitCode.USAGE)
    return value


def _write(file: Path, value: str) -> None:
    """In one step: a trial that starts meanwhile gets the old value or the new one."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    write_atomically(str(file), value.encode(), durable=True)


def _remove(file: Path) -> None:
    try:
        file.unlink()
    except FileNotFoundError as exc:
        raise CommandError(f"there is no secret {file.name}; `tuner secret ls` lists them", ExitCode.NOT_FOUND) from exc
    say(f"secret {file.name} is deleted")
