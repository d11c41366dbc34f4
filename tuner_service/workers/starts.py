"""The threads that start workers: a few at a time, and one that hangs takes no place from the others for long."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

AT_ONCE = 4  # starts; the others wait for their turn
PATIENCE_S = 20.0  # after which a start is no longer counted: it goes on, or hangs, beside the others

logger = logging.getLogger(__name__)

Start = Callable[[], object]


class Starts:
    """A thread begins with a start, and ends when none waits. Who puts one is not told how it ends."""

    def __init__(self, *, at_once: int = AT_ONCE, now: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._now = at_once, now
        self._lock = threading.Lock()
        self._waiting: deque[Start] = deque()
        self._since: dict[threading.Thread, float] = {}  # when each began what it does; not of late ones

    def put(self, start: Start) -> None:
        """``start`` is called when its turn has come. RuntimeError where there is no thread, and none can be had."""
        with self._lock:
            self._waiting.append(start)
        try:
            self.look()
        except RuntimeError:
            with self._lock:
                if self._since or start not in self._waiting:
                    return  # one of the threads that there are does it
                self._waiting.remove(start)
            raise

    def look(self) -> None:
        """Let others begin in the place of those that take too long. To be called now and then while some wait."""
        with self._lock:
            for thread, since in list(self._since.items()):
                if self._now() - since > PATIENCE_S:
                    del self._since[thread]
                    logger.error("worker_start_hangs", extra={"seconds": PATIENCE_S})
            while self._waiting and len(self._since) < self._at_once:
                thread = threading.Thread(
                    target=self._run, args=(self._waiting[0],), name="worker starter", daemon=True
                )
                thread.start()
                self._since[thread] = self._now()
                self._waiting.popleft()

    def close(self, timeout_s: float) -> None:
        """Those at work are waited for, so long at most, and those that hang are not. Nothing is put any more."""
        with self._lock:
            self._waiting.clear()
            threads = list(self._since)
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, start: Start | None) -> None:
        while start is not None:
            try:
                start()
            except Exception:  # the next ones are done all the same
                logger.exception("worker_start_failed")
            start = self._next()

    def _next(self) -> Start | None:
        """None where nothing waits, and where another thread has taken the place of this one."""
        me = threading.current_thread()
        with self._lock:
            if me not in self._since:
                return None
            if not self._waiting:
                del self._since[me]
                return None
            self._since[me] = self._now()
            return self._waiting.popleft()
