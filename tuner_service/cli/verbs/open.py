"""open: the service's page in a browser, signed in."""

from __future__ import annotations

import argparse
import html
import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trials.files import write_atomically
from tuner_service.cli.context import connected, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.cli.starting import service_and_body
from tuner_service.client import Client
from tuner_service.config import Settings

FILE = "open.html"  # in the home folder, its owner's alone


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    with _service(settings) as client:
        made = client.make_code()
        address = client.url + made["path"]
    if not arguments.print and has_browser() and settings.home.is_dir() and _opened(settings.home, address):
        otherwise = "if it does not, or may not read the file: tuner open --print"
        say(f"the page of {client.url} opens in your browser; {otherwise}")
        return ExitCode.OK
    print(address)
    say(f"good once, and for {made['seconds']:g} seconds: open it in a browser")
    return ExitCode.OK


@contextmanager
def _service(settings: Settings) -> Iterator[Client]:
    """Started where none runs, of a home folder that has had one: a folder that is mistyped stays as it is."""
    if settings.url or not settings.token_file.is_file():
        with connected(settings) as client:
            yield client
        return
    with service_and_body(settings, dict) as (client, _):
        yield client


def has_browser() -> bool:
    """Whether a browser of this machine can show something to whoever sits at it."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _opened(home: Path, address: str) -> bool:
    """Other users of the machine see what a browser is called with: the code stands in a file that only we may read."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">'
    file = home / FILE
    write_atomically(str(file), page.encode())
    return webbrowser.open(file.as_uri())
