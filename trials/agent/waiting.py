"""What a conversation waits for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from trials.agent.attempts import HeldAttempt
from trials.wire.messages import Acknowledge, Busy

T = TypeVar("T")


async def answered_before_end(held: HeldAttempt, answer: asyncio.Future[Acknowledge | Busy]) -> bool:
    """False once the attempt has its exit: these reports are sent again, with the last ones and the exit.

    The service lets reports wait for others; with an exit they are taken at once, and the next trial can begin.
    """
    ended = asyncio.ensure_future(held.ended.wait())
    try:
        await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
    return answer.done()


async def within(seconds: float, event: asyncio.Event) -> None:
    """Until ``event`` is set, and no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def saying(say: Callable[[], Awaitable[None]], every_s: float, work: Awaitable[T]) -> T:
    """What ``work`` gives; ``say`` is called each time that it has gone on for so long."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((task,), timeout=every_s))[0]:
            await say()
        return task.result()
    finally:
        task.cancel()
