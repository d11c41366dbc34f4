"""trial: adds, retries or stops one."""

from __future__ import annotations

import argparse
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, resolve_trial, settings_of, split_trial
from tuner_service.cli.files.experiment_file import check_readable, parse_file
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, parameters_text, print_rows
from tuner_service.cli.typed import assigned, value_of
from tuner_service.client import Client
from tuner_service.domain.wording import counted


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        match arguments.action:
            case "add":
                views = [_add(client, arguments)]
            case "retry":
                views = _retry(client, arguments)
            case _:
                experiment_id, number = resolve_trial(client, arguments.reference)
                views = [client.stop_trial(experiment_id, number)]
                say(f"trial {experiment_id}/{number} is told to stop")
    columns = [Column(title="TRIAL", text=lambda t: t["id"])]
    columns += [Column(title="STATUS", text=lambda t: t["status"])]
    columns += [Column(title="PARAMETERS", text=lambda t: parameters_text(t["parameters"]))]
    print_rows(views, output=arguments.output, columns=columns)
    return ExitCode.OK


def _add(client: Client, arguments: argparse.Namespace) -> Row:
    parameters: dict[str, Any] = {}
    if arguments.file is not None:
        check_readable(arguments.file)
        parameters = parse_file(arguments.file, what="parameters: it should be a mapping of them")
    for assignment in arguments.set or ():
        name, equals, text = assigned(assignment)
        if not equals or not name:
            raise CommandError(f"--set {assignment!r} should be NAME=VALUE, such as lr=0.1", ExitCode.USAGE)
        parameters[name] = value_of(text)
    if not parameters:
        raise CommandError("give the trial parameters: --set NAME=VALUE, or a file with all of them", ExitCode.USAGE)
    body = {"parameters": parameters, "outside_space": arguments.outside_space}
    return client.add_trial(resolve_experiment(client, arguments.reference), body)


def _retry(client: Client, arguments: argparse.Namespace) -> list[Row]:
    reference, number = split_trial(arguments.reference)
    if (number is None) != arguments.failed:
        raise CommandError(
            "name one trial (EXPERIMENT/NUMBER), or an experiment with --failed for all of them", ExitCode.USAGE
        )
    experiment_id = resolve_experiment(client, reference)
    if number is not None:
        return [client.retry_trial(experiment_id, number)]
    views = client.retry_failed(experiment_id)
    say(f"tried again of {experiment_id}: {counted(len(views), 'failed trial')}")
    return views
