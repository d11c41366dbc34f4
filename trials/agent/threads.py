"""Threads of an agent: those for work that may wait for a store or a disk, and others for what must not wait for that.

The loop's own threads are a few. Each that waits for a store that hangs is one less, and when none is left, whatever is
given to them waits, too. So what an agent does for all its trials has threads of its own, and so has each work that
goes to a store.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OWN_THREADS = 16
LEAVE_S = 5.0  # for work that is under way when the agent ends
logger = logging.getLogger(__name__)


class Threads(ThreadPoolExecutor):
    """``shutdown`` waits no longer than LEAVE_S for what is under way; what then hangs is left to ``leave``."""

    _until: float | None = None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as its base has it
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        self._until = self._until or time.monotonic() + LEAVE_S
        for thread in list(self._threads) if wait else []:
            thread.join(max(0.0, self._until - time.monotonic()))

    def hanging(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)


OWN = Threads(OWN_THREADS, thread_name_prefix="agent")


async def in_own_thread(work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """As ``asyncio.to_thread``, and not behind what waits for a store: for work that ends by itself, soon."""
    return await asyncio.get_running_loop().run_in_executor(OWN, partial(work, *arguments, **named))


def begun_apart(work: Callable[[], T]) -> asyncio.Future[T]:
    """``work`` in a thread that is its own, for what may never end: nothing else waits for it, the agent's end neither.

    OSError where the machine has no thread to spare.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(set_it: Callable[[Any], None], what: Any) -> None:
        if not done.done():
            set_it(what)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], Any] = (done.set_result, work())
        except BaseException as error:  # noqa: BLE001  whoever waits for it is told
            told = (done.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, *told)

    try:
        threading.Thread(target=run, name="apart", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no thread can be started: {error}") from error
    return done


async def apart(work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """As ``asyncio.to_thread``, for work that reads a store which may hang: those of others are begun all the same."""
    return await begun_apart(partial(work, *arguments, **named))


def leave(code: int, *pools: Threads) -> int:
    """``code``, for the end of the process; which is here where something hangs: the interpreter would wait for it."""
    for pool in pools:
        pool.shutdown(cancel_futures=True)
    hanging = sum(pool.hanging() for pool in pools)
    if hanging:
        logger.error("left_what_hangs", extra={"threads": hanging})
        logging.shutdown()
        os._exit(code)
    return code
