"""Parents of trials that somebody has stopped (SIGSTOP): found, and continued.

While one is stopped its trials run on, and nobody keeps their limits, reads their output or sees their ends.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable

from trials.processes.identity import is_stopped, send_verified
from trials.wire.records import ProcessRecord

STOPPED_S = 3.0  # so long it may be, as under a debugger that looks at it
logger = logging.getLogger(__name__)


class StoppedParents:
    """Those of one agent, looked at now and then."""

    def __init__(self) -> None:
        self._since: dict[ProcessRecord, float] = {}

    def look(self, parents: Iterable[ProcessRecord], *, now: float) -> set[ProcessRecord]:
        """Those that have been stopped for STOPPED_S, each time again; said in the log. ``go_on`` continues them."""
        stopped = {parent for parent in set(parents) if is_stopped(parent)}
        self._since = {parent: self._since.get(parent, now) for parent in stopped}
        for_long = {parent for parent, since in self._since.items() if now - since >= STOPPED_S}
        for parent in for_long:
            logger.warning("parent_stopped", extra={"pid": parent.pid, "for_s": round(now - self._since[parent])})
        return for_long

    @staticmethod
    def go_on(parents: Iterable[ProcessRecord]) -> None:
        for parent in parents:
            send_verified(signal.SIGCONT, parent)
