"""A cache of answers between two commits: of many equal reads one is built, and the others are given its bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner_service.api.auth import role_of
from tuner_service.api.measured import note_route
from tuner_service.api.responses import is_known
from tuner_service.api.versions import version_of
from tuner_service.ports import Queries
from tuner_service.service.access import PEOPLE, Role

MAX_AGE_S = 0.1  # for so long an answer stands: running_s counts by itself, and so do the lengths of the queues
ANSWERS_LIMIT = 1_000  # kept at once, all of one state of the database
ANSWER_BYTES = 4 << 20  # a longer one is not kept
CACHE_BYTES = 16 << 20  # of all together; what is found beyond is not kept

_LONG_POLL = b"wait_for"
_KNOWN = b"if-none-match"
_Key = tuple[Role | None, str, bytes]


class Read(Protocol):
    """A read whose answers may be shared; ``CachedReads.find`` gives those that routes declare."""

    @property
    def by_role(self) -> bool: ...

    @property
    def route(self) -> str:
        """The template of its path."""

    async def answer(self, scope: Scope, receive: Receive) -> Response | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole one with the status 200; ``tag`` is its ETag, empty where it has none."""

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    tag: str
    begun: float  # when its building began, by a clock of the process


@dataclass(slots=True, kw_only=True)
class _Flight:
    """An answer that is being built. ``answer`` stays None where it became another than 200."""

    version: int
    begun: float
    before: _Flight | None = None  # the one that is to land first
    landed: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Answer | None = None


class ResponseCache:
    """Gives a read the bytes of an equal one where nobody could tell them apart.

    That is: nothing was committed between the beginning of the building of those bytes and the beginning of this
    read, so a read sees every commit that came before it. Only what counts by itself is up to MAX_AGE_S old. Equal
    reads at the same moment wait for one building (request coalescing). Where something was committed since that
    building began, all that come until it has ended wait for the next one, and share that: it begins after them. So
    many pages that are told of a change at once have two answers built, however fast commits follow. Tokens are checked
    here as everywhere; where an answer depends on the reading role, each role has its own. ``find`` says which paths
    are reads of this kind.
    """

    def __init__(
        self,
        app: ASGIApp,
        queries: Queries,
        *,
        find: Callable[[str], Read | None],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._queries, self._find_read, self._elapsed = app, queries, find, elapsed
        self._version: int | None = None
        self._answers: dict[_Key, Answer] = {}  # of that version
        self._bytes = 0
        self._flights: dict[_Key, _Flight] = {}  # being built
        self._next: dict[_Key, _Flight] = {}  # to be built when that one has landed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = self._find_read(scope["path"]) if may_share(scope) else None
        role = None if read is None else role_of(HTTPConnection(scope))
        # A server may have to be asked for it: strangers ask nobody.
        version = await version_of(self._queries) if role in PEOPLE else None
        if read is None or version is None:
            await self._app(scope, receive, send)
            return
        note_route(scope, read.route)
        key = (role if read.by_role else None, scope["path"], scope["query_string"])
        answer = self._find(key, version)
        if answer is None:
            flight, builds = self._flight(key, version)
            if builds:
                if flight.before is not None:
                    await self._wait_for_turn(key, flight, flight.before)
                await self._build(key, flight, read, scope=scope, receive=receive, send=send)
                return
            await flight.landed.wait()
            answer = flight.answer
        if answer is None:
            await self._app(scope, receive, send)
        else:
            await send_answer(answer, scope, send)

    def _flight(self, key: _Key, version: int) -> tuple[_Flight, bool]:
        """What a read waits for, and whether it is the one that builds it."""
        flight = self._flights.get(key)
        if flight is None or self._elapsed() - flight.begun > MAX_AGE_S:
            flight = self._flights[key] = _Flight(version=version, begun=self._elapsed())
            return flight, True
        if flight.version == version:
            return flight, False
        following = self._next.get(key)
        if following is not None:
            return following, False
        following = self._next[key] = _Flight(version=version, begun=self._elapsed(), before=flight)
        return following, True

    async def _wait_for_turn(self, key: _Key, flight: _Flight, before: _Flight) -> None:
        try:
            await before.landed.wait()
            version = await version_of(self._queries)  # of before the building begins
        except BaseException:  # those who wait with it ask for themselves
            flight.landed.set()
            raise
        finally:
            if self._next.get(key) is flight:
                del self._next[key]
        flight.begun = self._elapsed()
        if version is not None:  # else the one of before, at which no later read is
            flight.version = version
        self._flights[key] = flight

    def _find(self, key: _Key, version: int) -> Answer | None:
        if version != self._version:
            self._version, self._bytes = version, 0
            self._answers.clear()
        answer = self._answers.get(key)
        if answer is None or self._elapsed() - answer.begun <= MAX_AGE_S:
            return answer
        self._bytes -= len(answer.body)
        del self._answers[key]
        return None

    async def _build(  # noqa: PLR0913  # a request has three parts
        self, key: _Key, flight: _Flight, read: Read, *, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Ask the handler or the application, send what it says, and keep it."""
        taken, whole = TakenAnswer(flight.begun), asking_for_all(scope)
        try:
            response = await read.answer(whole, receive)
            await (self._app if response is None else response)(whole, receive, taken.collect)
            flight.answer = taken.answer
            if flight.answer is not None:
                self._keep(key, flight.version, flight.answer)
        finally:
            flight.before = None
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.landed.set()
        await taken.send(scope, send)

    def _keep(self, key: _Key, version: int, answer: Answer) -> None:
        fits = self._bytes + len(answer.body) <= CACHE_BYTES and len(self._answers) < ANSWERS_LIMIT
        if version == self._version and fits and len(answer.body) <= ANSWER_BYTES and key not in self._answers:
            self._answers[key] = answer
            self._bytes += len(answer.body)


class TakenAnswer:
    """The messages of one answer, which a read of this kind sends in two: its head, and its whole body."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._messages: list[Message] = []

    async def collect(self, message: Message) -> None:
        self._messages.append(message)

    @cached_property
    def answer(self) -> Answer | None:
        """When all was collected; None for one with another status than 200."""
        if not self._messages or self._messages[0].get("status") != 200:
            return None
        headers = tuple((bytes(name), bytes(value)) for name, value in self._messages[0]["headers"])
        body = b"".join(message.get("body", b"") for message in self._messages[1:])
        tag = Headers(raw=list(headers)).get("etag", "")
        return Answer(headers=headers, body=body, tag=tag, begun=self._begun)

    async def send(self, scope: Scope, send: Send) -> None:
        """To the reader that it was built for."""
        if self.answer is not None:
            await send_answer(self.answer, scope, send)
            return
        for message in self._messages:
            await send(message)


def may_share(scope: Scope) -> bool:
    """A long poll is to wait for itself."""
    return scope["type"] == "http" and scope["method"] == "GET" and _LONG_POLL not in scope["query_string"]


def asking_for_all(scope: Scope) -> Scope:
    """For the application, which sends the whole answer: whether a client has it already is seen by ``send_answer``."""
    return {**scope, "headers": [entry for entry in scope["headers"] if entry[0] != _KNOWN]}


def header(scope: Scope, name: bytes) -> bytes:
    """Empty where there is none."""
    return next((bytes(value) for other, value in scope["headers"] if other == name), b"")


async def send_answer(answer: Answer, scope: Scope, send: Send) -> None:
    """The answer, or 304 where the client says that it has it."""
    known = header(scope, _KNOWN)
    if known and answer.tag and is_known(answer.tag, known.decode("latin-1")):
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", answer.tag.encode("latin-1"))]})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body})
