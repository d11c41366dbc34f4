"""A service that may go away while somebody waits for something, and come back: at another address, perhaps."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from tuner_service.client import Client, ClientError, ProblemError, UnreachableError
from tuner_service.client_http import UNAVAILABLE, TokenWithheldError

ABSENCE_S = 60.0  # for which it may be away
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 3.0  # between two looks for it
SLOWING = 1.4

T = TypeVar("T")


class PatienceOverError(Exception):
    """The time in which whoever waits wanted an answer is over, and the service is away."""


class LastingService:
    """Asked again and again while it is away; said once. ``find`` looks for it anew, wherever it is by now."""

    def __init__(
        self, client: Client, *, find: Callable[[], Client], say: Callable[[str], None], deadline: float | None
    ) -> None:
        """``deadline``: on the monotonic clock, of whoever waits. ``client`` is closed by who has made it."""
        self.client = client
        self._find, self._say, self._deadline = find, say, deadline
        self._found: Client | None = None
        self._gone_since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def call(self, work: Callable[[Client], T]) -> T:
        """What ``work`` gives, a read. What it raises once the service has been away for too long."""
        while True:
            try:
                found = work(self.client)
            except (UnreachableError, TokenWithheldError, ProblemError) as exc:
                if isinstance(exc, ProblemError) and exc.status != UNAVAILABLE:
                    raise
                self._wait(exc)
                self._look()
                continue
            if self._gone_since is not None:
                self._say("the service answers again")
                self._gone_since, self._pause_s = None, FIRST_PAUSE_S
            return found

    def another(self) -> Client:
        """For another thread."""
        return self.client.another()

    def close(self) -> None:
        if self._found is not None:
            self._found.close()

    def _wait(self, exc: ClientError) -> None:
        now = monotonic()
        if self._gone_since is None:
            self._gone_since = now
            self._say(f"{exc}; waiting for the service, {ABSENCE_S:g} s at most")
        if now - self._gone_since > ABSENCE_S:
            raise exc
        if self._deadline is not None and now >= self._deadline:
            raise PatienceOverError
        sleep(self._pause_s if self._deadline is None else min(self._pause_s, self._deadline - now))
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * SLOWING)

    def _look(self) -> None:
        try:
            found = self._find()
        except ClientError:
            return  # the next call says it
        self.close()
        self.client = self._found = found
