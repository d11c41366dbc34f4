"""sessions: browsers that are signed in."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, moment_text, print_rows
from tuner_service.client import Client

PATH = "/api/v1/sessions"
COLUMNS = (
    Column(title="SESSION", text=lambda s: s["id"]),
    Column(title="ROLE", text=lambda s: s["role"].replace("_", "-")),
    Column(title="SIGNED IN", text=lambda s: moment_text(s["created_at"])),
    Column(title="LAST USED", text=lambda s: moment_text(s["last_used_at"])),
    Column(title="FROM", text=lambda s: s["address"] or "-"),
    Column(title="BROWSER", text=lambda s: s["browser"] or "-", width=40),
)


def run(arguments: argparse.Namespace) -> int:
    ends = arguments.action == "end"
    if ends != bool(arguments.all or arguments.session) or (arguments.all and arguments.session):
        message = "`tuner sessions end` takes SESSION or --all; ls takes neither"
        raise CommandError(message, ExitCode.USAGE)
    with connected(settings_of(arguments)) as client:
        if not ends:
            print_rows(_sessions(client), output=arguments.output, columns=COLUMNS)
        elif arguments.all:
            count = client.call("DELETE", PATH).json()["ended"]
            say(f"{count} session{'' if count == 1 else 's'} ended")
        else:
            session = _found(client, arguments.session)
            client.call("DELETE", f"{PATH}/{session['id']}")
            say(f"session {session['id']} has ended")
    return ExitCode.OK


def _sessions(client: Client) -> list[Row]:
    return list(client.call("GET", PATH).json()["items"])


def _found(client: Client, prefix: str) -> Row:
    """The one whose id is or begins with that."""
    sessions = _sessions(client)
    found = [s for s in sessions if s["id"] == prefix] or [s for s in sessions if prefix and s["id"].startswith(prefix)]
    if not found:
        raise CommandError(f"no session {prefix!r} is open; `tuner sessions` lists them", ExitCode.NOT_FOUND)
    if len(found) > 1:
        ids = ", ".join(s["id"] for s in found)
        raise CommandError(f"{prefix!r} is the beginning of several sessions: {ids}", ExitCode.USAGE)
    return found[0]
