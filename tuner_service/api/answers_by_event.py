"""Answers for all who were told the same: a read that names an event is given any answer that has what it told.

    event N  ── to every page ──►  each asks, naming N  ──►  one answer is built, after N; all are given its bytes

While trials report, commits follow one another faster than pages ask, and no two reads would find the same state of the
database. But pages look because an event told them to, at most four times a second and all at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner_service.api.auth import role_of
from tuner_service.api.measured import note_route
from tuner_service.api.response_cache import (
    ANSWER_BYTES,
    Answer,
    Read,
    TakenAnswer,
    asking_for_all,
    header,
    may_share,
    send_answer,
)
from tuner_service.service.access import PEOPLE, Role

MAX_AGE_S = 1.0  # of an answer that is shared, for what no commit changes: seconds that are counted, queues
ANSWERS_LIMIT = 200  # kept at once, those used last
KEPT_BYTES = 16 << 20  # of all together
EVENT_HEADER = b"x-tuner-event"  # of an answer: the event up to which it has everything
_SEEN_HEADER = b"last-event-id"
_API = "/api/"
_REFUSED = 400  # and above: it says nothing of the database, least of all to whoever may not read

_Key = tuple[Role | None, str, bytes, bytes]


class Commits(Protocol):
    """``events.EventHub``, as far as it is asked here."""

    @property
    def newest(self) -> int: ...

    def sequence_in(self, event_id: str) -> int | None: ...

    def event_id(self, sequence: int) -> str: ...


@dataclass(slots=True, kw_only=True)
class _Flight:
    """An answer that is being built; it will have everything up to ``sequence``. None where it is another than 200."""

    sequence: int
    begun: float
    landed: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Answer | None = None


class AnswersByEvent:
    """Gives a read with ``Last-Event-ID`` the bytes of an equal one that was begun after that event was committed.

    So a read sees what it was told of, and everything before; what was committed after that may be missing, and is told
    by a later event. Every answer to a read says up to which event it has everything, and so does every answer to a
    change: who names the newest of what it was told and given never goes back. A read that names no event, or one that
    is not known here, is passed on. Who asks is checked here as everywhere.
    """

    def __init__(
        self,
        app: ASGIApp,
        commits: Commits,
        *,
        find: Callable[[str], Read | None],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._commits, self._find_read, self._elapsed = app, commits, find, elapsed
        self._kept: OrderedDict[_Key, tuple[int, Answer]] = OrderedDict()
        self._bytes = 0
        self._flights: dict[_Key, _Flight] = {}  # the newest of each

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_API):
            await self._app(scope, receive, send)
            return
        read = self._find_read(scope["path"]) if may_share(scope) else None
        if read is None:
            reads = scope["method"] in {"GET", "HEAD"}
            await self._app(scope, receive, self._naming(self._commits.newest if reads else None, send))
            return
        wanted = self._wanted(scope)
        role = None if wanted is None else role_of(HTTPConnection(scope))
        if wanted is None or role not in PEOPLE:
            await self._app(scope, receive, self._naming(self._commits.newest, send))
            return
        note_route(scope, read.route)
        key = (role if read.by_role else None, scope["path"], scope["query_string"], header(scope, b"accept-encoding"))
        found = self._find(key, wanted)
        if found is None:
            flight = self._flights.get(key)
            if flight is None or flight.sequence < wanted or self._is_old(flight.begun):
                await self._build(key, scope, receive, send)
                return
            await flight.landed.wait()
            if flight.answer is None:
                await self._app(scope, receive, self._naming(self._commits.newest, send))
                return
            found = flight.sequence, flight.answer
        sequence, answer = found
        await send_answer(answer, scope, self._naming(sequence, send))

    def _wanted(self, scope: Scope) -> int | None:
        event_id = header(scope, _SEEN_HEADER)
        return self._commits.sequence_in(event_id.decode("latin-1")) if event_id else None

    def _naming(self, sequence: int | None, send: Send) -> Send:
        """None: the newest when the answer begins, which is that of the change that is answered, or a later one."""

        async def send_with_name(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < _REFUSED:
                told = self._commits.event_id(self._commits.newest if sequence is None else sequence)
                message = {**message, "headers": [*message["headers"], (EVENT_HEADER, told.encode("latin-1"))]}
            await send(message)

        return send_with_name

    def _find(self, key: _Key, wanted: int) -> tuple[int, Answer] | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] < wanted or self._is_old(found[1].begun):
            return None
        self._kept.move_to_end(key)
        return found

    def _is_old(self, begun: float) -> bool:
        return self._elapsed() - begun > MAX_AGE_S

    async def _build(self, key: _Key, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the application, send what it says, and keep it."""
        flight = self._flights[key] = _Flight(sequence=self._commits.newest, begun=self._elapsed())
        taken = TakenAnswer(flight.begun)
        try:
            await self._app(asking_for_all(scope), receive, taken.collect)
            flight.answer = taken.answer
            if flight.answer is not None:
                self._keep(key, flight.sequence, flight.answer)
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.landed.set()
        await taken.send(scope, self._naming(flight.sequence, send))

    def _keep(self, key: _Key, sequence: int, answer: Answer) -> None:
        before = self._kept.get(key)
        if len(answer.body) > ANSWER_BYTES or (before is not None and before[0] > sequence):
            return
        self._forget(key)
        self._kept[key] = sequence, answer
        self._bytes += len(answer.body)
        while len(self._kept) > ANSWERS_LIMIT or self._bytes > KEPT_BYTES:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= len(found[1].body)
