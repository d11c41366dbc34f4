"""token: what people and agents are given to call the service with."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trials.files import put_in_place
from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, moment_text, print_object, print_rows
from tuner_service.client import Client
from tuner_service.client_paths import token_path

PATH = "/api/v1/tokens"
FILE_MODE = 0o600
COLUMNS = (
    Column(title="TOKEN", text=lambda t: t["name"]),
    Column(title="ROLE", text=lambda t: t["role"].replace("_", "-")),
    Column(title="STATE", text=lambda t: t["state"]),
    Column(title="MADE", text=lambda t: moment_text(t["created_at"])),
    Column(title="BY", text=lambda t: t["made_by"] or "-"),
    Column(title="EXPIRES", text=lambda t: moment_text(t["expires_at"]) if t["expires_at"] else "never"),
    Column(title="LAST USED", text=lambda t: moment_text(t["last_used_at"])),
)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "ls":
                rows = [{"id": row["name"], **row} for row in client.call("GET", PATH).json()["items"]]
                print_rows(rows, output=arguments.output, columns=COLUMNS)
            case "rm":
                client.call("DELETE", _path(arguments.name))
                say(f"token {arguments.name} is revoked: it opens nothing any more")
            case "add":
                body = {"name": arguments.name, "role": arguments.role.replace("-", "_")} | _lasting(arguments)
                _give(arguments, lambda: _made(client, PATH, body))
            case _:
                _give(arguments, lambda: _made(client, _path(arguments.name) + "/rotate", _lasting(arguments)))
    return ExitCode.OK


def _check(arguments: argparse.Namespace) -> None:
    action = arguments.action
    if (action == "ls") != (arguments.name is None):
        raise CommandError("`tuner token add|rotate|rm` takes a name; ls takes none", ExitCode.USAGE)
    if (action == "add") != (arguments.role is not None):
        raise CommandError("`tuner token add` takes --role, and the others do not", ExitCode.USAGE)
    if action not in {"add", "rotate"} and (arguments.expires or arguments.file):
        raise CommandError("--expires and --file belong to `tuner token add` and `rotate`", ExitCode.USAGE)


def _path(name: str) -> str:
    if name in {"", ".", ".."}:
        raise CommandError(f"there is no token {name!r}; `tuner token ls` lists them", ExitCode.NOT_FOUND)
    return token_path(name)


def _lasting(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"expires_in": arguments.expires} if arguments.expires else {}


def _made(client: Client, path: str, body: dict[str, Any]) -> Row:
    row: Row = client.call("POST", path, body=body).json()
    return {"id": row["name"], **row}


def _give(arguments: argparse.Namespace, make: Callable[[], Row]) -> None:
    """To standard output, or into a file that nobody else may read: that it can be written is seen before it is made.

    Nobody is told the token a second time.
    """
    if not arguments.file:
        row = make()
        print_object(row, output=arguments.output, text=lambda made: f"{made['token']}\n")
        say(f"this is the token {row['name']}, shown once: keep it, or hand it on by a way that others do not read")
        return
    file = Path(arguments.file)
    if arguments.action == "add" and file.exists():
        raise CommandError(f"{file} is there already; name another file", ExitCode.CONFLICT)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w", encoding="ascii") as out:
            row = make()
            out.write(row["token"] + "\n")
        put_in_place(str(draft), str(file))
    except OSError as exc:
        raise CommandError(f"the token cannot be written to {file}: {exc.strerror}") from exc
    finally:
        draft.unlink(missing_ok=True)
    say(f"the token {row['name']} stands in {file}, which only you may read")
