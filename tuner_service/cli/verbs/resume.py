"""resume: an experiment goes on where it was."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from tuner_service.cli.context import resolve_experiment, settings_of
from tuner_service.cli.files.experiment_file import code_of
from tuner_service.cli.files.places import local_path
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.progress import follow
from tuner_service.cli.output.tables import Row, number_text, print_object
from tuner_service.cli.starting import Body, service_and_body
from tuner_service.cli.typed import budget_of, given
from tuner_service.config import Settings
from tuner_service.local_service import find_service, require_service
from tuner_service.setting_values import store_location


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.assets is not None:
        settings = replace(settings, asset_store=store_location(arguments.assets, folder=Path.cwd()))
        _require_no_service(settings)
    _require_database(settings)
    with service_and_body(settings, lambda: _resume_body(arguments)) as (client, body):
        experiment_id = resolve_experiment(client, arguments.reference)
        before = client.experiment(experiment_id)
        view = client.resume(experiment_id, body)
        if before["status"] == "running" and not body:
            say(f"experiment {experiment_id} is running; a service that starts goes on with it by itself")
        else:
            say(f"experiment {experiment_id} was {before['status']} and is {view['status']} now")
        for attempt in view["running"]:
            say(f"  trial {attempt['number']} {_attempt_text(attempt)}")
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        if arguments.wait:
            return follow(client, experiment_id, find=lambda: require_service(settings), timeout_s=arguments.timeout)
    return ExitCode.OK


def _attempt_text(attempt: Row) -> str:
    if not attempt["pid"]:
        return f"starts in attempt {attempt['attempt']}"
    at = "" if attempt["step"] is None else f", step {attempt['step']}, {number_text(attempt['value'])}"
    return f"runs on in process {attempt['pid']}, attempt {attempt['attempt']}{at}"


def _resume_body(arguments: argparse.Namespace) -> Body:
    body = given(arguments, ("skip_line", "algorithm_timeout")) | budget_of(arguments)
    if arguments.code is not None:
        body |= code_of(Path(os.path.realpath(local_path(arguments.code, "--code"))))
    return body


def _require_no_service(settings: Settings) -> None:
    """The store of a service is that of its start."""
    client = find_service(settings)
    if client is not None:
        client.close()
        raise CommandError(
            f"a service runs on {settings.home} already, with the store it was started with: end it with "
            "`tuner serve --stop` (trials run on), then resume with --assets",
            ExitCode.CONFLICT,
        )


def _require_database(settings: Settings) -> None:
    """A resume on an empty folder is a mistake, not a reason to make a database there."""
    file = settings.database_file
    if not settings.url and file is not None and not file.exists():
        raise CommandError(
            f"there is no database {file}; name the home folder of the experiment with --home, or its file with --db",
            ExitCode.NOT_FOUND,
        )
