"""Work in a checkpoint store that may hang: NFS whose server is away, an endpoint that takes bytes and says nothing.

Nobody can break off a thread that waits for one. So each such work has a thread of its own, which nothing else waits
for, and is given up once no byte has moved for too long. The store is then left alone for a while, and asked again with
one more thread; the pause is twice as long with each that hangs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

from trials.agent.threads import begun_apart
from trials.stores import StoreError

AT_ONCE = min(32, (os.cpu_count() or 1) + 4)  # threads that are waited for; as many as a loop has of its own
SILENT_S = 300.0  # without a byte; with what a slow disk needs to take in those that came before
SLOWEST_BYTES_S = 10e6
MOST_BYTES = 1 << 40  # so many are believed
LEFT_ALONE_S, LEFT_ALONE_MAX_S = 600.0, 86_400.0
LOOK_S = 1.0
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreHangsError(StoreError):
    """It does not answer, and is not asked any more for now."""


class _Work:
    """``said_at``: when its last byte moved; of what waits for its turn, nothing is to be heard yet."""

    def __init__(self, root: str, *, silent_s: float, now: Callable[[], float]) -> None:
        self.root, self.silent_s, self._now = root, silent_s, now
        self.said_at = now()

    def moved(self) -> None:
        self.said_at = self._now()

    @property
    def is_overdue_at(self) -> float:
        return self.said_at + self.silent_s


class StoreThreads:
    """Of one agent: what hangs is known to every conversation. Lives in one event loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._under_way: set[_Work] = set()  # those given up, too, until they return
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, work: Callable[[Callable[[], None]], T], *, root: str, size: int = 0) -> T:
        """What ``work`` gives, which is to call what it is given whenever bytes have moved; some ``size`` of them.

        StoreHangsError where it takes too long, or where other work at the same ``root`` does.
        """
        self._require_answering(root)
        async with self._room:
            self._require_answering(root)  # it may have been waited for
            silent_s = SILENT_S + min(max(0, size), MOST_BYTES) / SLOWEST_BYTES_S
            under_way = _Work(root, silent_s=silent_s, now=self._now)
            done = self._begun(under_way, work)
            while not (await asyncio.wait((done,), timeout=LOOK_S))[0]:
                if self._now() >= under_way.is_overdue_at:
                    raise StoreHangsError(f"store: {root}: it has not answered for {silent_s:.0f} s")
            return done.result()

    def _require_answering(self, root: str) -> None:
        hanging = [work for work in self._under_way if work.root == root and self._now() >= work.is_overdue_at]
        if not hanging:
            return
        pause_s = min(LEFT_ALONE_S * 2 ** (len(hanging) - 1), LEFT_ALONE_MAX_S)
        begun = max(work.is_overdue_at for work in hanging)
        if self._now() < begun + pause_s:
            raise StoreHangsError(
                f"store: {root}: it did not answer before, and is left alone for another "
                f"{begun + pause_s - self._now():.0f} s"
            )

    def _begun(self, under_way: _Work, work: Callable[[Callable[[], None]], T]) -> asyncio.Future[T]:
        def run() -> T:
            try:
                return work(under_way.moved)
            finally:
                self._under_way.discard(under_way)

        self._under_way.add(under_way)
        try:
            return begun_apart(run)
        except OSError:
            self._under_way.discard(under_way)
            raise
