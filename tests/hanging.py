"""What hangs in a thread until it is let go, and whether others have threads meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Hanging:
    """A function that hangs, in the place of one that asks a disk or a store."""

    def __init__(self) -> None:
        self.gate, self.has_begun = threading.Event(), threading.Event()

    def __call__(self, *_: Any) -> None:
        self.has_begun.set()
        assert self.gate.wait(60)

    async def leaves_threads_to_others(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What ``work`` comes to, which hangs here first: of one thread for all, others have that one meanwhile."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        working = asyncio.ensure_future(work)
        try:
            while not self.has_begun.is_set():
                await asyncio.sleep(0)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "another's"), 30)
        finally:
            self.gate.set()
        return await working
