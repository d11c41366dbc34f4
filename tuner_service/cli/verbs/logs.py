"""logs: the output of a trial, while it runs and after; the logs of a service and of its agent."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from trials.wire.log_files import generations
from tuner_service.cli.context import connected, resolve_trial, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.client import Answer, Client, ClientError, ProblemError, UnreachableError
from tuner_service.client_http import UNAVAILABLE
from tuner_service.config import Settings
from tuner_service.local_service import require_service

POLL_S = 0.3
ABSENCE_S = 60.0  # for which a service, or the agent that has the log, may be away while it is followed
SLOWING, LONGEST_POLL_S = 1.5, 5.0


def run(arguments: argparse.Namespace) -> int:
    """Bytes as the trial wrote them. With --follow it ends when the trial has; Ctrl-C detaches.

    A service that is started again meanwhile is found again.
    """
    if arguments.service or arguments.agent:
        return _print_own(arguments)
    query: dict[str, Any] = {"stream": "stderr" if arguments.stderr else "stdout", "offset": 0}
    if arguments.attempt is not None:
        query["attempt"] = arguments.attempt
    query |= {name: at for name in ("node", "rank") if (at := getattr(arguments, name)) is not None}
    settings = settings_of(arguments)
    with connected(settings) as client:
        trial = resolve_trial(client, arguments.reference)
    with closing(Reading(settings, trial, query, lasts=arguments.follow)) as reading:
        try:
            while True:
                answer = reading.next()
                if answer is None:
                    continue
                sys.stdout.buffer.write(answer.data)
                sys.stdout.buffer.flush()
                is_all = reading.has_all
                if is_all and (not arguments.follow or answer.headers["log-ended"] == "true"):
                    return ExitCode.OK
                if is_all:
                    sleep(POLL_S)
        except KeyboardInterrupt:
            say(f"detached; trial {reading.name} goes on")
            return ExitCode.INTERRUPTED


class Reading:
    """A log, range after range; one that ``lasts`` goes on over the absence of the service, or of the agent."""

    def __init__(self, settings: Settings, trial: tuple[str, int], query: dict[str, Any], *, lasts: bool) -> None:
        self.name = f"{trial[0]}/{trial[1]}"
        self.has_all = False
        self._settings, self._trial, self._query, self._lasts = settings, trial, query, lasts
        self._client: Client | None = None
        self._gone_since: float | None = None
        self._pause_s = POLL_S

    def next(self) -> Answer | None:
        """What follows; None after a pause, where nobody could say."""
        try:
            self._client = self._client or require_service(self._settings)
            answer = self._client.log(*self._trial, self._query)
        except (UnreachableError, ProblemError) as exc:
            self.close()
            if not self._lasts or (isinstance(exc, ProblemError) and exc.status != UNAVAILABLE):
                raise
            self._wait(exc)
            return None
        end, size = int(answer.headers["log-end"]), int(answer.headers["log-size"])
        gone = int(answer.headers["log-offset"]) - self._query["offset"]
        if gone > 0:
            say(f"{gone} bytes of the log before this are not kept any more")
        # Pinned, so that a new attempt does not begin in the middle of the old one's log.
        self._query |= {"offset": end, "attempt": int(answer.headers["log-attempt"])}
        self.has_all = end >= size
        self._gone_since, self._pause_s = None, POLL_S
        return answer

    def close(self) -> None:
        """The next look finds the service anew: one that was started again may have another address."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _wait(self, exc: ClientError) -> None:
        """``exc`` is raised once it has lasted too long."""
        now = monotonic()
        if self._gone_since is None:
            self._gone_since = now
            say(f"{exc}; waiting, {ABSENCE_S:g} s at most")
        if now - self._gone_since > ABSENCE_S:
            say(f"the trial runs on; its log from the beginning: tuner logs -f {self.name}")
            raise exc
        sleep(self._pause_s)
        self._pause_s = min(LONGEST_POLL_S, self._pause_s * SLOWING)


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
            sleep(POLL_S)
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
