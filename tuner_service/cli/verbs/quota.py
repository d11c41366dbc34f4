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
GIB = 2**30


def _of(used: float, quota: float | None) -> str:
    return f"{number_text(used)} of {'all' if quota is None else number_text(quota)}"


def _memory_of(used: int, quota: int | None) -> str:
    return f"{_of(used / GIB, None if quota is None else quota / GIB)}{'' if quota is None else ' GiB'}"


GROUP_COLUMNS = (
    Column(title="GROUP", text=lambda g: g["name"]),
    Column(title="GPUS", text=lambda g: _of(g["used"], g["gpus"]), right=True),
    Column(title="CORES", text=lambda g: _of(g["used_cpus"], g["cpus"]), right=True),
    Column(title="MEMORY", text=lambda g: _memory_of(g["used_memory_bytes"], g["memory_bytes"]), right=True),
    Column(title="BORROWS", text=lambda g: "yes" if g["borrows"] else "no"),
    Column(title="EXPERIMENTS", text=lambda g: " ".join(g["experiments"])),
)


def run(arguments: argparse.Namespace) -> int:
    lists = arguments.action in {"ls", "list"}
    if lists != (arguments.name is None):
        raise CommandError("`tuner quota set NAME` and `tuner quota rm NAME` take a name; ls takes none", _USAGE)
    changes = {
        "--gpus": arguments.gpus,
        "--cpus": arguments.cpus,
        "--memory": arguments.memory,
        "--borrow": arguments.borrow,
    }
    if arguments.action != "set" and any(value is not None for value in changes.values()):
        raise CommandError(f"{', '.join(changes)} belong to `tuner quota set`", _USAGE)
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "ls" | "list":
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
    body = client.quota_group_body(arguments.name)
    for name in ("gpus", "cpus"):
        text = getattr(arguments, name)
        if text is not None:
            body[name] = None if text == "all" else _number(text, f"--{name}")
    if arguments.memory is not None:
        body["memory"] = None if arguments.memory == "all" else arguments.memory
    if arguments.borrow is not None:
        body["borrows"] = arguments.borrow
    return body


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise CommandError(f'{option} should be a number or "all", not {text!r}', _USAGE)
    return number


def _sentence(view: Row) -> str:
    quotas = [
        "as many GPUs as there are" if view["gpus"] is None else f"{view['gpus']:g} GPUs",
        None if view["cpus"] is None else f"{view['cpus']:g} cores",
        None if view["memory_bytes"] is None else f"{view['memory_bytes'] / GIB:.3g} GiB",
    ]
    borrowed = f"{'and' if view['borrows'] else 'never'} what other groups leave idle"
    return ", ".join([*filter(None, quotas), borrowed])
