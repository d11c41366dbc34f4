"""The stop of one attempt: ordered by a file or by word, and its script told by that file before any signal.

A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH110

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from trials.files import read_json, to_json, write_atomically
from trials.processes.ending import Escalation, signal_all
from trials.wire.files import FILE_COOPERATES, FILE_STOP
from trials.wire.texts import valid_text

COOPERATIVE_SHARE = 0.8  # of the grace, before a script that asks should_stop gets SIGTERM
GRACE_MAX_S = 1e9
REASON_CHARACTERS = 200


class Stopping:
    """The stop of one attempt, from the first order on; ``reason`` is None as long as there is none."""

    def __init__(self, folder: str) -> None:
        self.reason: str | None = None
        self._path = f"{folder}/{FILE_STOP}"
        self._cooperates = f"{folder}/{FILE_COOPERATES}"
        self._escalation: Escalation | None = None

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
        steps = self._escalation
        if steps is None:
            return most_s
        # SIGTERM is an answer to a script that has asked, and it may begin to ask at any time.
        steps.told_s = steps.grace_s * COOPERATIVE_SHARE if os.path.exists(self._cooperates) else 0.0
        number, wait = steps.due(time.monotonic())
        if number is not None:
            signal_all(everyone(), number)
        return min(most_s, wait)

    def _take(self, *, grace_s: float, reason: str) -> None:
        now, grace = time.monotonic(), max(0.0, grace_s)
        if self._escalation is None:
            self.reason, self._escalation = reason, Escalation(now=now, grace_s=grace)
        # An order repeated with a shorter grace moves the end; the same order read again does not.
        self._escalation.shorten(now=now, grace_s=grace)


def _number(value: Any) -> float:
    """What the agent has written; 0 for what only a trial can have put there."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= GRACE_MAX_S else 0.0
