"""Commits that do not return. A disk or a server that hangs raises nothing, so what waits for it is told by the time.

A synchronous replica that is lost, a server that is stopped, a file system that does not answer: the thread that
commits waits inside the operating system, and no limit of ours ends that. So the beginning of the commit at hand is
remembered, and whoever would wait for a commit that has lasted too long is told so instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from tuner_service.domain.errors import UnavailableError

HANGS_S = 10.0  # a commit that has not returned after so long hangs; a lock is waited for as long at most
LOOK_S = 1.0  # how often a sender that waits for its commit looks whether that hangs

logger = logging.getLogger(__name__)


class CommitTimer:
    """Knows how long the commit at hand has lasted. One thread commits; any thread asks. ``elapsed``: in seconds."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._begun: float | None = None
        self._is_said = False  # in the log, of the commit at hand

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the time of one commit."""
        begun = self._begun = self._elapsed()
        try:
            yield
        finally:
            self._begun = None
            if self._is_said:
                self._is_said = False
                logger.warning("commit_returned", extra={"seconds": self._elapsed() - begun})

    def trouble(self) -> str:
        """What is wrong, and what to do, while a commit hangs; else ""."""
        begun = self._begun
        lasted = 0.0 if begun is None else self._elapsed() - begun
        if lasted <= HANGS_S:
            return ""
        if not self._is_said:
            self._is_said = True
            logger.error("commit_hangs", extra={"seconds": lasted})
        return (
            f"a commit has not returned for {lasted:.0f} s: the disk of the database hangs, or its server does, or the "
            "server waits for a synchronous replica that is gone (synchronous_standby_names); once that is mended the "
            "service goes on by itself"
        )


class Outcomes:
    """Of commands whose senders wait on one event loop. ``hangs``: as ``Commands.commit_hangs``."""

    def __init__(self, hangs: Callable[[], str], *, look_s: float = LOOK_S) -> None:
        self._hangs, self._look_s = hangs, look_s
        self._unknown: set[asyncio.Future[None]] = set()  # of commands whose senders wait no more

    async def wait(self, command: Future[None]) -> None:
        """Returns when ``command`` is on disk, or raises the error that refused it.

        UnavailableError while a commit hangs: then it may be carried out all the same. A sender that goes away takes
        nothing back.
        """
        outcome = asyncio.wrap_future(command)
        try:
            while not outcome.done():
                await asyncio.wait({outcome}, timeout=self._look_s)
                if not outcome.done() and (trouble := self._hangs()):
                    raise UnavailableError(
                        f"whether this is done is not known yet: {trouble}. To repeat a request that had an "
                        "Idempotency-Key with the same key is safe; before you repeat another one, look whether it "
                        "was done"
                    )
        finally:
            if not outcome.done():
                self._unknown.add(outcome)
                outcome.add_done_callback(self._known)
        outcome.result()

    async def settle(self) -> None:
        """Returns when every command is done whose sender waits no more now, and not those that follow.

        UnavailableError while a commit hangs.
        """
        unknown = set(self._unknown)
        while unknown:
            if trouble := self._hangs():
                raise UnavailableError(f"what became of an earlier request is not known yet: {trouble}")
            _, unknown = await asyncio.wait(unknown, timeout=self._look_s)

    def _known(self, outcome: asyncio.Future[None]) -> None:
        self._unknown.discard(outcome)
        if not outcome.cancelled():
            outcome.exception()  # looked at: nobody waits for it any more
