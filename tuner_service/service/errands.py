"""What takes a while, done by one thread, one after the other, so that whoever orders it waits for none of it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


def begun_aside(work: Callable[[], object], name: str) -> bool:
    """Whether ``work`` is done by a thread of its own from now on; False where no thread can be had."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


class Errands:
    """The thread begins with the first errand. Nobody is told how one ends, but the log where it raises."""

    def __init__(self, name: str) -> None:
        """``name``: of the thread."""
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, errand: Callable[[], object]) -> None:
        """``errand`` is called when those before it are done. RuntimeError where no thread can be had. One caller."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._waiting.put(errand)

    def close(self, timeout_s: float) -> None:
        """Those that wait are waited for, so long at most. Nothing is put any more."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (errand := self._waiting.get()) is not None:
            try:
                errand()
            except Exception:  # the next ones are done all the same
                logger.exception("errand_failed", extra={"errands": self._name})
