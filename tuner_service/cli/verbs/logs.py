"""logs: the output of a trial, while it runs and after; the logs of a service and of its agent."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from trials.wire.log_files import generations
from tuner_service.cli.context import connected, resolve_trial, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say

POLL_S = 0.3


def run(arguments: argparse.Namespace) -> int:
    """Bytes as the trial wrote them. With --follow it ends when the trial has; Ctrl-C detaches."""
    if arguments.service or arguments.agent:
        return _print_own(arguments)
    query: dict[str, Any] = {"stream": "stderr" if arguments.stderr else "stdout", "offset": 0}
    if arguments.attempt is not None:
        query["attempt"] = arguments.attempt
    query |= {name: at for name in ("node", "rank") if (at := getattr(arguments, name)) is not None}
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


def _print_own(arguments: argparse.Namespace) -> int:
    """Older files first, as one log. With --follow until Ctrl-C, over the moment when the file is moved and emptied."""
    settings = settings_of(arguments)
    file = settings.log_file if arguments.service else settings.home / "agent" / "agent.log"
    if settings.url:
        raise CommandError(f"the logs of {settings.url} are on its own machine; read them there", ExitCode.CONFLICT)
    if arguments.stderr or any(getattr(arguments, name) is not None for name in ("attempt", "node", "rank")):
        raise CommandError("--stderr, --attempt, --node and --rank are of trials; leave them out", ExitCode.USAGE)
    found = generations(file)
    if not found:
        what = "a service writes one that `start`, `run` or `resume` started; `serve` logs where it was started"
        raise CommandError(
            f"there is no {file}; {what if arguments.service else 'no agent has run'}", ExitCode.NOT_FOUND
        )
    end = 0
    for path in found:
        with suppress(FileNotFoundError), path.open("rb") as log:  # moved on meanwhile
            shutil.copyfileobj(log, sys.stdout.buffer)
            end = log.tell()
    sys.stdout.buffer.flush()
    try:
        while arguments.follow:
            time.sleep(POLL_S)
            end = _print_from(file, end)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _print_from(file: Path, end: int) -> int:
    """What was added since ``end``; the new end."""
    with suppress(FileNotFoundError), file.open("rb") as log:
        if os.fstat(log.fileno()).st_size < end:  # it was moved and emptied: what came before that is at its end there
            with suppress(FileNotFoundError), Path(f"{file}.1").open("rb") as older:
                older.seek(end)
                shutil.copyfileobj(older, sys.stdout.buffer)
            end = 0
        log.seek(end)
        shutil.copyfileobj(log, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return log.tell()
    return 0
