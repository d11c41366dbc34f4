"""A service that is told to end has ended soon, whatever keeps it.

It leaves in order: requests under way, the step at hand, its workers. What hangs on the way, as a database server that
takes connections and answers nothing, would keep it for as long. A service can be killed at any moment without a loss,
so then it ends at once, and says where each of its threads was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

LIMIT_S = 25.0  # `serve --stop` waits for 30 s
SAID_WITHIN_S = 1.0  # a thread that hangs may hold the lock of the log
CALLS = 6  # of each thread, the innermost ones
FAILURE = 1

logger = logging.getLogger(__name__)


class Ending:
    """Watches from its making on, by a thread of its own; nothing happens before ``begin``."""

    def __init__(self, *, limit_s: float | None = None, leave: Callable[[int], object] = os._exit) -> None:
        self._limit_s = LIMIT_S if limit_s is None else limit_s
        self._leave, self._told = leave, os.eventfd(0)
        self.has_begun = False
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    def begin(self) -> None:
        """So long it has from now on. Safe in the handler of a signal, and to repeat: it takes no lock."""
        if not self.has_begun:
            self.has_begun = True
            os.eventfd_write(self._told, 1)

    def _watch(self) -> None:
        os.eventfd_read(self._told)
        threading.Event().wait(self._limit_s)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending, and starts no thread any more
            saying = threading.Thread(target=self._say, daemon=True)
            saying.start()
            saying.join(SAID_WITHIN_S)
        self._leave(FAILURE)

    def _say(self) -> None:
        logger.error("end_took_too_long", extra={"seconds": self._limit_s, "threads": _threads()})


def _threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate() if thread.name != "ending"}
    frames = sys._current_frames()  # noqa: SLF001  # documented, for this
    return "; ".join(
        f"{name}: {_calls(frames[ident])}"
        for ident, name in names.items()
        if ident in frames and ident != threading.get_ident()
    )


def _calls(frame: FrameType) -> str:
    found = traceback.extract_stack(frame)[: -CALLS - 1 : -1]
    return " < ".join(f"{call.name} ({call.filename.rpartition('/')[2]}:{call.lineno})" for call in found)
