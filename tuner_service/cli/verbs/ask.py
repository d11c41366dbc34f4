"""ask: holds a trial, so that whoever asks evaluates it; waits until there is one."""

from __future__ import annotations

import argparse
import secrets
import time
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.output.tables import parameters_text, print_object
from tuner_service.client import Client, ProblemError

WAIT_S = 30.0  # of one request


def run(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, arguments.reference)
        key = secrets.token_hex(16) if arguments.key is None else arguments.key
        trial = _ask(client, experiment_id, key=key, timeout_s=arguments.timeout)
    print_object(trial, output=arguments.output, text=_text)
    return ExitCode.OK


def _text(trial: dict[str, Any]) -> str:
    return (
        f"trial       {trial['id']}\ntoken       {trial['token']}\nparameters  {parameters_text(trial['parameters'])}\n"
    )


def _ask(client: Client, experiment_id: str, *, key: str, timeout_s: float | None) -> dict[str, Any]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = WAIT_S if deadline is None else max(0.0, min(WAIT_S, deadline - time.monotonic()))
        try:
            return client.ask(experiment_id, key=key, wait_s=left)
        except ProblemError as exc:
            if exc.status != 503:
                raise
            if deadline is not None and time.monotonic() >= deadline:
                raise CommandError(str(exc), ExitCode.TIMEOUT) from exc
            time.sleep(0.2)  # also where a service that is starting answers at once
