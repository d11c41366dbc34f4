"""Single flight: work that grows with a history is done once for equal requests, a few at a time, and then cached."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tuner_service.api.responses import is_known, json_response
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.questions import Check, NotWantedError, Reply

AT_A_TIME = 1  # pieces of work: the process that does it does one
WAITING_LIMIT = 64  # different ones; one more is told to try again
KEPT = 256  # answers, the ones used last
KEPT_BYTES = 64 << 20  # of them all together
CLIENT_GONE = 499  # what nobody reads

Work = Callable[[Check], Reply]
Key = tuple[str, ...]
Made = TypeVar("Made")


@dataclass(slots=True, kw_only=True)
class _Flight:
    """One piece of work, and how many wait for it. ``revision``, ``work``: of the request that came last."""

    revision: str | None
    work: Work
    task: asyncio.Task[Reply] | None = None
    unwanted: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0


@dataclass(kw_only=True)
class SingleFlight:
    """The work of one event loop. What no client waits for any more is not begun, or ends at its next ``check``.

    Work that waits for its turn is shared by requests of whatever revision: it sees everything that was there when
    the last of them came. So each that is open on the same thing adds nothing while everything changes all the time.
    """

    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_A_TIME))
    _flights: dict[Key, _Flight] = field(default_factory=dict)  # by key and revision
    _waiting: dict[Key, _Flight] = field(default_factory=dict)  # by key, those that have not begun
    _kept: OrderedDict[Key, tuple[str, Reply]] = field(default_factory=OrderedDict)
    _bytes: int = 0

    async def answer(self, request: Request, key: Key, *, revision: str | None, work: Work) -> Response:
        """What ``work`` gives, with its entity tag; 304 where the client has it.

        ``key`` and ``revision`` name it: equal ones, equal answers.

        Without a revision it is neither shared nor kept. UnavailableError where too many pieces of work wait already.
        """
        kept = self._kept.get(key)
        if kept is not None and kept[0] == revision:
            self._kept.move_to_end(key)
            return _response(request, kept[1])
        flight = self._flight(request, key, revision, work)
        reply = await self._wait(request, flight)
        if reply is None:
            return json_response({}, status=CLIENT_GONE)
        if flight.revision is not None:
            self._keep(key, flight.revision, reply)
        return _response(request, reply)

    def _keep(self, key: Key, revision: str, reply: Reply) -> None:
        before = self._kept.pop(key, None)
        self._bytes += len(reply.body) - (0 if before is None else len(before[1].body))
        self._kept[key] = (revision, reply)
        while len(self._kept) > KEPT or (self._bytes > KEPT_BYTES and self._kept):
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= len(dropped.body)

    def _flight(self, request: Request, key: Key, revision: str | None, work: Work) -> _Flight:
        name = (*key, f"{id(request)}" if revision is None else revision)
        found = self._flights.get(name)
        if found is not None and not found.unwanted.is_set():
            return found
        found = None if revision is None else self._waiting.get(key)
        if found is not None and not found.unwanted.is_set():
            found.revision, found.work = revision, work
            return found
        if len(self._flights) >= WAITING_LIMIT:
            raise UnavailableError(f"{WAITING_LIMIT} analyses wait already; try again later")
        flight = self._flights[name] = _Flight(revision=revision, work=work)
        if revision is not None:
            self._waiting[key] = flight

        def begun(check: Check) -> Reply:
            return flight.work(check)

        def begins() -> None:
            if self._waiting.get(key) is flight:
                del self._waiting[key]
            if flight.revision is not None:
                self._leave(name, flight)
                self._flights[*key, flight.revision] = flight

        def landed(task: asyncio.Task[Reply]) -> None:
            if self._waiting.get(key) is flight:
                del self._waiting[key]
            self._leave(name, flight)
            self._leave((*key, flight.revision or ""), flight)
            if not task.cancelled():
                task.exception()  # looked at, also where nobody waits for it any more

        flight.task = asyncio.create_task(in_turn(self._turn, begun, flight.unwanted, begins))
        flight.task.add_done_callback(landed)
        return flight

    def _leave(self, name: Key, flight: _Flight) -> None:
        if self._flights.get(name) is flight:
            del self._flights[name]

    async def _wait(self, request: Request, flight: _Flight) -> Reply | None:
        """The view; None where the client has gone before there is one."""
        assert flight.task is not None  # noqa: S101  # _flight has begun it
        flight.waiting += 1
        left = asyncio.create_task(gone(request))
        try:
            await asyncio.wait({flight.task, left}, return_when=asyncio.FIRST_COMPLETED)
            return flight.task.result() if flight.task.done() else None
        finally:
            left.cancel()
            flight.waiting -= 1
            if not flight.waiting:
                flight.unwanted.set()


async def in_turn(
    turn: asyncio.Semaphore,
    work: Callable[[Check], Made],
    unwanted: threading.Event,
    begins: Callable[[], None] = lambda: None,
) -> Made:
    """What ``work`` gives, in a thread. NotWantedError where it is unwanted before it begins, or at its next check.

    ``begins`` is called right before it does.
    """

    def check() -> None:
        if unwanted.is_set():
            raise NotWantedError

    async with turn:
        check()
        begins()
        return await asyncio.to_thread(work, check)


def _response(request: Request, reply: Reply) -> Response:
    headers = {"ETag": reply.tag, "Vary": "Accept-Encoding"}
    if is_known(reply.tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if reply.compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(reply.body, media_type=reply.media_type, headers=headers)


async def gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
