"""Analyses as pictures, drawn here."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path

from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row, print_object


def print_or_draw(arguments: argparse.Namespace, kind: str, view: Row, text: Callable[[Row], str]) -> int:
    if arguments.png:
        write_png(Path(arguments.png), kind, view)
        say(f"written to {arguments.png}")
    else:
        print_object(view, output=arguments.output, text=text)
    return ExitCode.OK


def write_png(path: Path, kind: str, view: Row) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        message = "a picture needs matplotlib: pip install 'tuner-service[plot]'; or print data with -o json"
        raise CommandError(message, ExitCode.FAILURE)
    from tuner_service.figures.drawing import draw

    path.write_bytes(draw(kind, {kind: view}, form="png"))
