"""Pauses of those who wait by awaiting, which end when something has changed; the blocking ones are the command's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tuner_service.cli.listening import Listener
from tuner_service.client import Client


class AsyncHeard:
    """The first pause begins to listen, and ``async with`` ends it."""

    def __init__(self, connect: Callable[[], Client], experiment_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._listener = Listener(connect, experiment_id, self._tell)

    @property
    def hears(self) -> bool:
        return self._listener.hears

    async def pause(self, seconds: float) -> None:
        """For so long, or until something has changed since the last pause."""
        self._listener.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._listener.close()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            self._loop.call_soon_threadsafe(self._changed.set)
