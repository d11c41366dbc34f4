"""Single flight: work that grows with a history is done once for equal requests, a few at a time, and then cached."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from tuner_service.api.responses import json_response, tagged_response
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.views import View

AT_A_TIME = 2  # pieces of work
WAITING_LIMIT = 64  # different ones; one more is told to try again
KEPT = 64  # answers, the ones used last
CLIENT_GONE = 499  # what nobody reads

Check = Callable[[], None]
Work = Callable[[Check], View]
Key = tuple[str, ...]


class NotWantedError(Exception):
    """No client waits for the work any more."""


@dataclass(slots=True, kw_only=True)
class _Flight:
    """One piece of work, and how many wait for it."""

    task: asyncio.Task[View]
    unwanted: threading.Event
    waiting: int = 0


@dataclass(kw_only=True)
class SingleFlight:
    """The work of one event loop. What no client waits for any more is not begun, or ends at its next ``check``."""

    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_A_TIME))
    _flights: dict[Key, _Flight] = field(default_factory=dict)
    _kept: OrderedDict[Key, tuple[str, View]] = field(default_factory=OrderedDict)

    async def answer(self, request: Request, key: Key, *, revision: str | None, work: Work) -> Response:
        """What ``work`` gives, as JSON with an entity tag. ``key`` and ``revision`` name it: equal ones, equal answers.

        Without a revision it is neither shared nor kept. UnavailableError where too many pieces of work wait already.
        """
        if revision is None:
            view = await self._wait(request, self._flight((*key, f"{id(request)}"), work))
            return json_response({}, status=CLIENT_GONE) if view is None else tagged_response(request, view)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == revision:
            self._kept.move_to_end(key)
            return tagged_response(request, kept[1])
        view = await self._wait(request, self._flight((*key, revision), work))
        if view is None:
            return json_response({}, status=CLIENT_GONE)
        self._kept[key] = (revision, view)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return tagged_response(request, view)

    def _flight(self, name: Key, work: Work) -> _Flight:
        found = self._flights.get(name)
        if found is not None and not found.unwanted.is_set():
            return found
        if len(self._flights) >= WAITING_LIMIT:
            raise UnavailableError(f"{WAITING_LIMIT} analyses wait already; try again later")
        unwanted = threading.Event()
        flight = _Flight(task=asyncio.create_task(self._run(work, unwanted)), unwanted=unwanted)
        self._flights[name] = flight

        def landed(task: asyncio.Task[View]) -> None:
            if self._flights.get(name) is flight:
                del self._flights[name]
            if not task.cancelled():
                task.exception()  # looked at, also where nobody waits for it any more

        flight.task.add_done_callback(landed)
        return flight

    async def _run(self, work: Work, unwanted: threading.Event) -> View:
        def check() -> None:
            if unwanted.is_set():
                raise NotWantedError

        async with self._turn:
            check()
            return await asyncio.to_thread(work, check)

    async def _wait(self, request: Request, flight: _Flight) -> View | None:
        """The view; None where the client has gone before there is one."""
        flight.waiting += 1
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({flight.task, gone}, return_when=asyncio.FIRST_COMPLETED)
            return flight.task.result() if flight.task.done() else None
        finally:
            gone.cancel()
            flight.waiting -= 1
            if not flight.waiting:
                flight.unwanted.set()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
