"""Files that are made as a whole before they are sent: one at a time, for as long as somebody waits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from starlette.requests import Request

from tuner_service.api.single_flight import gone, in_turn
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.questions import Check

WAITING_LIMIT = 16  # one more is told to try again
PIECE_BYTES = 256 << 10


@dataclass(kw_only=True)
class MadeFiles:
    """The files of one event loop. What nobody waits for any more is not begun, or ends at its next ``check``."""

    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    _waiting: int = 0

    async def make(self, request: Request, work: Callable[[Check], IO[bytes]]) -> IO[bytes] | None:
        """What ``work`` gives; None where the client has gone. UnavailableError where too many wait already."""
        if self._waiting >= WAITING_LIMIT:
            raise UnavailableError(f"{WAITING_LIMIT} exports wait already; try again later, or take csv or jsonl")
        unwanted = threading.Event()
        self._waiting += 1
        made = asyncio.create_task(in_turn(self._turn, work, unwanted))
        left = asyncio.create_task(gone(request))
        try:
            await asyncio.wait({made, left}, return_when=asyncio.FIRST_COMPLETED)
            return made.result() if made.done() else None
        finally:
            self._waiting -= 1
            left.cancel()
            unwanted.set()
            made.add_done_callback(_dropped if not made.done() else _looked_at)


def _looked_at(made: asyncio.Task[IO[bytes]]) -> None:
    if not made.cancelled():
        made.exception()


def _dropped(made: asyncio.Task[IO[bytes]]) -> None:
    """Nobody reads it any more."""
    if not made.cancelled() and made.exception() is None:
        made.result().close()


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """All of ``file``, which is closed behind its last piece."""
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
