"""stop: an experiment, or one trial; with --local what runs on this machine."""

from __future__ import annotations

import argparse
import time

from tuner_service.cli.context import connected, resolve_experiment, settings_of, split_trial
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.progress import ENDED
from tuner_service.client import Client

WAIT_S = 30.0  # of one request; the next one follows
FINAL = frozenset({"succeeded", "failed", "early_stopped", "canceled"})


def run(arguments: argparse.Namespace) -> int:
    if arguments.local:
        from tuner_service.cli.local_trials import stop_local_trials

        return stop_local_trials(settings_of(arguments), arguments.reference)
    if arguments.reference is None:
        raise CommandError("name what to stop: an experiment, a trial (EXPERIMENT/NUMBER), or --local", ExitCode.USAGE)
    reference, number = split_trial(arguments.reference)
    with connected(settings_of(arguments)) as client:
        experiment_id = resolve_experiment(client, reference)
        if number is not None:
            client.stop_trial(experiment_id, number)
            what = f"trial {experiment_id}/{number}"
        else:
            client.stop(experiment_id)
            what = f"experiment {experiment_id}"
        say(f"{what} is told to stop")
        if arguments.wait and not _wait(client, experiment_id, number, timeout_s=arguments.timeout):
            say(f"gave up waiting after {arguments.timeout:g} s; {what} still stops")
            return ExitCode.TIMEOUT
    return ExitCode.OK


def _wait(client: Client, experiment_id: str, number: int | None, *, timeout_s: float | None) -> bool:
    """Whether it has ended in time."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        wait_s = WAIT_S if deadline is None else min(WAIT_S, max(0.0, deadline - time.monotonic()))
        if number is None:
            has_ended = client.experiment(experiment_id, wait_s=wait_s)["status"] in ENDED
        else:
            has_ended = client.trial(experiment_id, number, wait_s=wait_s)["status"] in FINAL
        if has_ended:
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
