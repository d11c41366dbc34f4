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
        """Continue what has been stopped for STOPPED_S, each time again, and say so in the log. Those it was."""
        continued = set()
        stopped = {parent for parent in set(parents) if is_stopped(parent)}
        self._since = {parent: self._since.get(parent, now) for parent in stopped}
        for parent, since in self._since.items():
            if now - since >= STOPPED_S:
                logger.warning("parent_stopped", extra={"pid": parent.pid, "for_s": round(now - since)})
                send_verified(signal.SIGCONT, parent)
                continued.add(parent)
        return continued
