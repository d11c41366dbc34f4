"""tell: a report, or the end, of a trial that was asked for; prints whether to go on."""

from __future__ import annotations

import argparse
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.output.tables import print_object
from tuner_service.cli.typed import assigned, metric_of


def run(arguments: argparse.Namespace) -> int:
    body = _body(arguments)
    with connected(settings_of(arguments)) as client:
        told = client.tell(resolve_experiment(client, arguments.reference), body)
    print_object(told, output=arguments.output, text=lambda row: f"{row['decision']}\n")
    return ExitCode.OK


def _body(arguments: argparse.Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {"token": arguments.token}
    if arguments.value is not None:
        body["value"] = metric_of(arguments.value)
    values = {}
    for assignment in arguments.metric or ():
        name, equals, text = assigned(assignment)
        if not equals or not name:
            raise CommandError(f"--metric {assignment!r} should be NAME=VALUE, such as loss=0.1", ExitCode.USAGE)
        values[name] = metric_of(text)
    if values:
        body["values"] = values
    if arguments.step is not None:
        body["step"] = arguments.step
    if arguments.error is not None:
        body["error"] = arguments.error
    if arguments.alive:
        body["ended"] = False
    return body
