"""For the commands that make a service where none runs: start, run, resume."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tuner_service.cli.files.experiment_file import read_body
from tuner_service.cli.output.descriptions import not_set_text
from tuner_service.cli.output.exit_codes import say
from tuner_service.cli.output.tables import Row
from tuner_service.cli.typed import given
from tuner_service.client import Client, UnreachableError
from tuner_service.config import Settings
from tuner_service.local_service import find_service, require_its_database, start_service

Body = dict[str, Any]


@contextmanager
def service_and_body(settings: Settings, make_body: Callable[[], Body]) -> Iterator[tuple[Client, Body]]:
    """The service, started if none runs, and the body, made while it starts."""
    client = find_service(settings)
    if client is not None:
        try:
            require_its_database(settings)
            yield client, make_body()
        finally:
            client.close()
        return
    if settings.url:
        raise UnreachableError(f"no service answers at {settings.url}")
    starting = start_service(settings)
    try:
        body = make_body()
    except BaseException:
        # Nothing will be asked of the service that was started for this body.
        starting.process.terminate()
        starting.process.wait()
        raise
    client = starting.wait()
    say(f"started a service on {settings.home}; its page is {client.url} (`tuner open` signs in)")
    try:
        yield client, body
    finally:
        client.close()


def body_of(arguments: argparse.Namespace) -> Body:
    """The body that creates the experiment of a file, with what was typed instead of the file's."""
    dry_run = getattr(arguments, "dry_run", False)
    body = read_body(arguments.file, name=arguments.name, note=arguments.note, commits=not dry_run)
    body |= given(arguments, ("project", "priority"))
    if arguments.tag:
        tags = body.get("tags")
        body["tags"] = [*(tags if isinstance(tags, list) else []), *arguments.tag]
    return body


def say_what_is_not_set(view: Row) -> None:
    """Before many trials have run without it."""
    missing = not_set_text(view)
    if missing is not None:
        say(f"careful: {missing}")


def new_key() -> str:
    return os.urandom(16).hex()
