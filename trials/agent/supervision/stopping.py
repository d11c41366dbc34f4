"""The steps of a stop: told, SIGTERM, SIGKILL.

Imported by the supervisor, so it stays as small as its start is quick.
"""
# Without pathlib, which would add a third to the start of a supervisor.
# ruff: noqa: PTH110

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from trials.files import read_json, to_json, write_atomically
from trials.processes.identity import send
from trials.wire.files import FILE_COOPERATES, FILE_STOP
from trials.wire.texts import valid_text

COOPERATIVE_SHARE = 0.8  # of the grace, before a script that asks should_stop gets SIGTERM
KILL_REPEAT_S = 0.2
GRACE_MAX_S = 1e9
REASON_CHARACTERS = 200


class Stopping:
    """The stop of one attempt, from the first order on; ``reason`` is None as long as there is none."""

    def __init__(self, folder: str) -> None:
        self.reason: str | None = None
        self._path = f"{folder}/{FILE_STOP}"
        self._cooperates = f"{folder}/{FILE_COOPERATES}"
        self._begun = 0.0
        self._grace = 0.0
        self._told_to_end = False
        self._killed_at = 0.0

    def look(self) -> None:
        """Take note of an order in the attempt's folder."""
        if os.path.exists(self._path):
            ordered = read_json(self._path) or {}
            self._take(
                grace_s=_number(ordered.get("grace_s")),
                reason=valid_text(str(ordered.get("reason", "stopped"))[:REASON_CHARACTERS]),
            )

    def order(self, *, grace_s: float, reason: str) -> None:
        """As if it stood in the folder, where it is written down for the script unless the disk is full."""
        self._take(grace_s=grace_s, reason=reason)
        try:
            if not os.path.exists(self._path):
                write_atomically(self._path, to_json({"grace_s": grace_s, "reason": reason}))
        except OSError:
            return  # it stops all the same: a script that asks is told by SIGTERM then

    def escalate(self, everyone: Callable[[], Iterable[int]], *, most_s: float) -> float:
        """Take the step that is due; the seconds until the next one, ``most_s`` at most."""
        if self.reason is None:
            return most_s
        passed = time.monotonic() - self._begun
        if passed >= self._grace:
            return self._kill(everyone)
        if self._told_to_end:
            return min(most_s, self._grace - passed)
        signal_after = self._grace * COOPERATIVE_SHARE if os.path.exists(self._cooperates) else 0.0
        if passed >= signal_after:
            self._told_to_end = True
            for pid in everyone():
                send(pid, signal.SIGTERM)
                send(pid, signal.SIGCONT)  # a stopped process gets no other signal
            return min(most_s, self._grace - passed)
        return min(most_s, signal_after - passed)

    def _take(self, *, grace_s: float, reason: str) -> None:
        grace = max(0.0, grace_s)
        if self.reason is None:
            self.reason, self._begun, self._grace = reason, time.monotonic(), grace
        # An order repeated with a shorter grace moves the end; the same order read again does not.
        self._grace = min(self._grace, time.monotonic() - self._begun + grace)

    def _kill(self, everyone: Callable[[], Iterable[int]]) -> float:
        if time.monotonic() - self._killed_at >= KILL_REPEAT_S:
            for pid in everyone():
                send(pid, signal.SIGKILL)
            self._killed_at = time.monotonic()
        return KILL_REPEAT_S


def _number(value: Any) -> float:
    """What the agent has written; 0 for what only a trial can have put there."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= GRACE_MAX_S else 0.0
