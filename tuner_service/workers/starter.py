"""One thread that starts workers, one after the other, so that whoever orders a start waits for none."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Starter:
    """Begun with the first start. Each start says by itself what became of it."""

    def __init__(self) -> None:
        self._starts: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, start: Callable[[], None]) -> None:
        """``start`` is called when those before it are done. RuntimeError where no thread can be had. One caller."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="worker starter", daemon=True)
            thread.start()
            self._thread = thread
        self._starts.put(start)

    def close(self, timeout_s: float) -> None:
        """What is being started is waited for, so long at most."""
        if self._thread is not None:
            self._starts.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (start := self._starts.get()) is not None:
            try:
                start()
            except Exception:  # of the next one nobody would hear if this thread ended
                logger.exception("start_failed")
