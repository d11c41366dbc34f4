"""quota: named shares of the devices."""

from __future__ import annotations

import argparse
import math
from typing import Any

from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, number_text, print_object, print_rows
from tuner_service.client import Client

_USAGE = ExitCode.USAGE
GROUP_COLUMNS = (
    Column(title="GROUP", text=lambda g: g["name"]),
    Column(title="GPUS", text=lambda g: "all" if g["gpus"] is None else number_text(g["gpus"]), right=True),
    Column(title="USED", text=lambda g: number_text(g["used"]), right=True),
    Column(title="BORROWS", text=lambda g: "yes" if g["borrows"] else "no"),
    Column(title="EXPERIMENTS", text=lambda g: " ".join(g["experiments"])),
)


def run(arguments: argparse.Namespace) -> int:
    if (arguments.action == "list") != (arguments.name is None):
        raise CommandError("`tuner quota set NAME` and `tuner quota rm NAME` take a name; list takes none", _USAGE)
    changes = {"--gpus": arguments.gpus, "--borrow": arguments.borrow}
    if arguments.action != "set" and any(value is not None for value in changes.values()):
        raise CommandError(f"{' and '.join(changes)} belong to `tuner quota set`", _USAGE)
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "list":
                print_rows(client.quota_groups(), output=arguments.output, columns=GROUP_COLUMNS)
            case "set":
                view = client.set_quota_group(arguments.name, _body(client, arguments))
                print_object(view, output=arguments.output, text=lambda row: f"{row['name']}\n")
                say(f"quota group {view['name']}: {_sentence(view)}")
            case _:
                client.delete_quota_group(arguments.name)
                say(f"quota group {arguments.name} is deleted")
    return ExitCode.OK


def _body(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the group is now, with what was asked for."""
    known = next((group for group in client.quota_groups() if group["name"] == arguments.name), {})
    body = {"gpus": known.get("gpus"), "borrows": known.get("borrows", True)}
    if arguments.gpus is not None:
        body["gpus"] = None if arguments.gpus == "all" else _number(arguments.gpus)
    if arguments.borrow is not None:
        body["borrows"] = arguments.borrow
    return body


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise CommandError(f'--gpus should be a number of devices or "all", not {text!r}', _USAGE)
    return number


def _sentence(view: Row) -> str:
    gpus = "as many GPUs as there are" if view["gpus"] is None else f"{view['gpus']:g} GPUs"
    return f"{gpus}, {'and' if view['borrows'] else 'never'} what other groups leave idle"
