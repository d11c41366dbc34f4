"""The lock of a loader, whose holder a signal handler may interrupt to close that very loader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class InterruptibleLock(threading.Condition):
    """As a Condition. What waits for other threads, which may want this lock, goes through ``when_left``."""

    def __init__(self) -> None:
        super().__init__()
        self._acts: dict[int, list[Callable[[], None]]] = {}  # of each thread: no other one does what it has to

    def when_left(self, act: Callable[[], None]) -> None:
        """Now; or, where a signal handler calls this in the middle of what its thread does under the lock, once that
        thread has left it."""
        if self._is_owned():  # type: ignore[attr-defined]  # as Condition itself asks
            self._acts.setdefault(threading.get_ident(), []).append(act)
        else:
            act()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.release()
        acts = self._acts.get(threading.get_ident())
        while acts and not self._is_owned():  # type: ignore[attr-defined]  # as Condition itself asks
            acts.pop(0)()
