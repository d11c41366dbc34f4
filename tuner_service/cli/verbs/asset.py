"""asset: add, list, show, get and remove trees of files by their content."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner_service.assets.adding import Addition, add_asset
from tuner_service.assets.fetching import get_asset
from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.files.ignore import ignoring_in_code
from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.sizes import size_text
from tuner_service.cli.output.tables import Column, Row, moment_text, print_object, print_rows
from tuner_service.cli.starting import service_and_body
from tuner_service.client import Client
from tuner_service.domain.assets import RESERVED_NAMES
from tuner_service.domain.wording import counted

FILES_SHOWN = 20
COLUMNS = (
    Column(title="ASSET", text=lambda a: a["id"][:16]),
    Column(title="KIND", text=lambda a: a["kind"]),
    Column(title="NAMES", text=lambda a: " ".join(a["names"]), width=60),
    Column(title="FILES", text=lambda a: str(a["files"]), right=True),
    Column(title="SIZE", text=lambda a: size_text(a["size"]), right=True),
    Column(title="ADDED", text=lambda a: moment_text(a["created_at"])),
)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    settings = settings_of(arguments)
    if arguments.action == "add":
        with service_and_body(settings, dict) as (client, _):
            _add(client, arguments)
        return ExitCode.OK
    with connected(settings) as client:
        match arguments.action:
            case "ls":
                query = {"kind": arguments.kind} if arguments.kind else {}
                print_rows(client.assets(query), output=arguments.output, columns=COLUMNS)
            case "show":
                view = client.asset(arguments.what)
                print_object(view, output=arguments.output, text=lambda row: _text(client, row))
            case "get":
                target = Path(arguments.target or arguments.what.partition("@")[0])
                with ByteBar() as bar:
                    get_asset(client, arguments.what, target, told=bar.told)
                say(f"{arguments.what} lies in {target}")
            case _:
                client.delete_asset(arguments.what)
                say(f"{arguments.what} is removed; `tuner gc` frees the room of what nothing else needs")
    return ExitCode.OK


def _check(arguments: argparse.Namespace) -> None:
    if (arguments.action == "ls") != (arguments.what is None):
        raise CommandError(
            "`tuner asset add DIR`, `show`, `get` and `rm ASSET` take one; ls takes none", ExitCode.USAGE
        )
    if arguments.name is not None and arguments.action != "add":
        raise CommandError("--name belongs to `tuner asset add`", ExitCode.USAGE)
    if arguments.kind is not None and arguments.action not in {"add", "ls"}:
        raise CommandError("--kind belongs to `tuner asset add` and `ls`", ExitCode.USAGE)
    if arguments.kind == "archive" and arguments.action == "add":
        raise CommandError("archives hold metrics of experiments; `tuner archive EXPERIMENT` makes one", ExitCode.USAGE)
    if arguments.target is not None and arguments.action != "get":
        raise CommandError("a second folder belongs to `tuner asset get ASSET DIR`", ExitCode.USAGE)
    called = arguments.name if arguments.action == "add" else arguments.what
    if called in RESERVED_NAMES:
        raise CommandError(f"no asset can be named {called!r}: the REST API has that word", ExitCode.USAGE)


def _add(client: Client, arguments: argparse.Namespace) -> None:
    source = Path(arguments.what)
    kind = arguments.kind or "dataset"
    ignored = ignoring_in_code(source) if kind == "code" and source.is_dir() else None
    with ByteBar() as bar:
        view = add_asset(
            client, Addition(source=source, kind=kind, name=arguments.name, is_ignored=ignored), told=bar.told
        )
    print_object(view, output=arguments.output, text=lambda row: f"{_called(row)}\n")
    say(f"{source}: {counted(view['files'], 'file')}, {size_text(view['size'])}")


def _called(view: Row) -> str:
    return f"{view['name']}@{view['version']}" if view["name"] else str(view["digest"])


def _text(client: Client, view: Row) -> str:
    lines = [
        f"{view['digest']}",
        f"kind         {view['kind']}",
        f"names        {' '.join(view['names']) or '-'}",
        f"size         {size_text(view['size'])} in {counted(view['files'], 'file')}",
        f"added        {moment_text(view['created_at'])}",
        f"experiments  {' '.join(view['experiments']) or '-'}",
        "",
    ]
    for count, file in enumerate(client.asset_files(view["id"])):
        if count == FILES_SHOWN:
            lines.append(f"… and {view['files'] - count} more files")
            break
        lines.append(f"{size_text(file['size']):>10}  {file['path']}")
    return "\n".join(lines) + "\n"
