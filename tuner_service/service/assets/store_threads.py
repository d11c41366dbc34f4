"""Threads of their own for whatever asks an asset store: one that hangs keeps them, and nobody who asks for rows."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tuner_service.domain.errors import UnavailableError

THREADS = 8  # as many as one client's connections
WAITING_LIMIT = 64  # requests that wait for one of them; one more is told to try again

Found = TypeVar("Found")


class StoreThreads:
    """For any event loop. Threads are started when they are needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="asset-store")
        self._lock = threading.Lock()
        self._under_way = 0

    async def run(self, work: Callable[[], Found]) -> Found:
        """What ``work`` gives.

        UnavailableError where too many wait already, because the store is slow or hangs, and where no thread can be
        had.
        """
        with self._lock:
            if self._under_way >= THREADS + WAITING_LIMIT:
                raise UnavailableError(
                    f"{WAITING_LIMIT} requests wait for the asset store already, which is slow or does not answer; "
                    "look whether it can be reached, and try again"
                )
            self._under_way += 1
        return await self._run(work, self._leave)

    async def go_on(self, work: Callable[[], Found]) -> Found:
        """As ``run``, for what has begun with one: it is not refused in the midst of it."""
        return await self._run(work, lambda _: None)

    def close(self) -> None:
        """Nothing more is begun. What is under way is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], Found], leave: Callable[[Future[Any]], None]) -> Found:
        job: Future[Found] = Future()
        job.add_done_callback(leave)  # not when its client goes away: a call that hangs keeps its thread
        begin = partial(_do, job, partial(contextvars.copy_context().run, work))
        try:
            self._threads.submit(begin).add_done_callback(lambda begun: begun.cancelled() and job.cancel())
        except RuntimeError as exc:  # it may be taken by another thread all the same
            if job.cancel():
                raise UnavailableError(f"the asset store cannot be asked now: {exc}; try again") from exc
        return await asyncio.wrap_future(job)

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self._under_way -= 1


def _do(job: Future[Found], work: Callable[[], Found]) -> None:
    """Unless nobody waits for it any more."""
    if not job.set_running_or_notify_cancel():
        return
    try:
        job.set_result(work())
    except BaseException as exc:  # noqa: BLE001  # whatever it was, it is told who waits
        job.set_exception(exc)
