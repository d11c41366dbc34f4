"""start, run, resume: the commands that make a service where none runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner_service.cli.context import resolve_experiment, settings_of
from tuner_service.cli.files.experiment_file import check_readable, pack_folder, read_body
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.progress import detached, follow
from tuner_service.cli.output.tables import Row, number_text, parameters_text, print_object
from tuner_service.cli.verbs.read import not_set_text
from tuner_service.client import Client, UnreachableError
from tuner_service.config import Settings
from tuner_service.local_service import find_service, start_service

Body = dict[str, Any]


def start(arguments: argparse.Namespace) -> int:
    check_readable(arguments.file)
    with _service_and_body(settings_of(arguments), lambda: read_body(arguments.file, name=arguments.name)) as found:
        client, body = found
        if arguments.dry_run:
            print_object(client.create(body, dry_run=True), output=arguments.output, text=_dry_run_text)
            return ExitCode.OK
        view = client.create(body, key=arguments.key or _new_key())
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        if arguments.output == "table":
            say(f"started {view['name']}; follow it with: tuner watch {view['id']}")
        _say_what_is_not_set(view)
    return ExitCode.OK


def run(arguments: argparse.Namespace) -> int:
    check_readable(arguments.file)
    with _service_and_body(settings_of(arguments), lambda: read_body(arguments.file, name=arguments.name)) as found:
        client, body = found
        view = client.create(body, key=_new_key())
        _say_what_is_not_set(view)
        try:
            print(view["id"], flush=True)
            return follow(client, view["id"], timeout_s=arguments.timeout)
        except KeyboardInterrupt:  # before or after ``follow`` minds it
            return detached(view["id"])


def resume(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    _require_database(settings)
    with _service_and_body(settings, lambda: _resume_body(arguments)) as (client, body):
        experiment_id = resolve_experiment(client, arguments.reference)
        before = client.experiment(experiment_id)
        if before["status"] == "running" and not body:
            view = before
            say(f"experiment {experiment_id} is running; a service that starts goes on with it by itself")
        else:
            view = client.resume(experiment_id, body)
            say(f"experiment {experiment_id} was {before['status']} and is {view['status']} now")
        for attempt in view["running"]:
            say(f"  trial {attempt['number']} {_attempt_text(attempt)}")
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        if arguments.wait:
            return follow(client, experiment_id, timeout_s=arguments.timeout)
    return ExitCode.OK


def _say_what_is_not_set(view: Row) -> None:
    """Before many trials have run without it."""
    missing = not_set_text(view)
    if missing is not None:
        say(f"careful: {missing}")


def _new_key() -> str:
    return os.urandom(16).hex()


def _attempt_text(attempt: Row) -> str:
    if not attempt["pid"]:
        return f"starts in attempt {attempt['attempt']}"
    at = "" if attempt["step"] is None else f", step {attempt['step']}, {number_text(attempt['value'])}"
    return f"runs on in process {attempt['pid']}, attempt {attempt['attempt']}{at}"


def _resume_body(arguments: argparse.Namespace) -> Body:
    names = ("trials", "duration", "parallel", "failures")
    budget = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    body: Body = {"budget": budget} if budget else {}
    if arguments.skip_line is not None:
        body["skip_line"] = arguments.skip_line
    if arguments.code is not None:
        body["code"] = pack_folder(Path(arguments.code).expanduser().resolve())
    return body


def _require_database(settings: Settings) -> None:
    """A resume on an empty folder is a mistake, not a reason to make a database there."""
    file = settings.database_file
    if not settings.url and file is not None and not file.exists():
        raise CommandError(
            f"there is no database {file}; name the home folder of the experiment with --home, or its file with --db",
            ExitCode.NOT_FOUND,
        )


@contextmanager
def _service_and_body(settings: Settings, make_body: Callable[[], Body]) -> Iterator[tuple[Client, Body]]:
    """The service, started if none runs, and the body, made while it starts."""
    client = find_service(settings)
    if client is not None:
        try:
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
    say(f"started a service on {settings.home}")
    try:
        yield client, body
    finally:
        client.close()


def _dry_run_text(answer: Row) -> str:
    import yaml

    text = yaml.safe_dump(answer["experiment"], sort_keys=False, allow_unicode=True)
    samples = "".join(f"  {parameters_text(sample)}\n" for sample in answer["samples"])
    size = "infinite" if answer["space_size"] == "Infinity" else f"{answer['space_size']} points"
    return f"{text}\n# the search space is {size}; some of it:\n{samples}"
