"""logs: the output of a trial, while it runs and after."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tuner_service.cli.context import connected, resolve_trial, settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say

POLL_S = 0.3


def run(arguments: argparse.Namespace) -> int:
    """Bytes as the trial wrote them. With --follow it ends when the trial has; Ctrl-C detaches."""
    query: dict[str, Any] = {"stream": "stderr" if arguments.stderr else "stdout", "offset": 0}
    if arguments.attempt is not None:
        query["attempt"] = arguments.attempt
    with connected(settings_of(arguments)) as client:
        experiment_id, number = resolve_trial(client, arguments.reference)
        try:
            while True:
                answer = client.log(experiment_id, number, query)
                # Pinned, so that a new attempt does not begin in the middle of the old one's log.
                query["attempt"] = int(answer.headers["log-attempt"])
                sys.stdout.buffer.write(answer.data)
                sys.stdout.buffer.flush()
                end, size = int(answer.headers["log-end"]), int(answer.headers["log-size"])
                is_all = end >= size
                if is_all and (not arguments.follow or answer.headers["log-ended"] == "true"):
                    return ExitCode.OK
                query["offset"] = end
                if is_all:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            say(f"detached; trial {experiment_id}/{number} goes on")
            return ExitCode.INTERRUPTED
