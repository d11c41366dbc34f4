"""Counts requests: by the template of their route, so that what clients send cannot make the counts grow."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner_service.service.measures import Answered, RequestMeasures

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"  # a method that no route has; a path that none has, or that was refused before it was looked at
PAGE = "/"  # and the files of it
_SEEN = "tuner_service.request"


class _Seen:
    """What is found out about one request on its way. The copies of its scope share it."""

    __slots__ = ("route",)

    def __init__(self) -> None:
        self.route = OTHER


def note_route(scope: Scope, template: str) -> None:
    """Says which route answers this request."""
    seen = scope.get(_SEEN)
    if isinstance(seen, _Seen):
        seen.route = template


async def note_matched_route(connection: HTTPConnection) -> None:
    """The first dependency of every route."""
    route = connection.scope.get("route")
    if isinstance(route, APIRoute):
        note_route(connection.scope, route.path)


class MeasuredRequests:
    """How many requests were answered, and how long each took until its answer began.

    Until then, because how long a stream of events is open says nothing of the service, nor how fast a client reads.
    """

    def __init__(
        self, app: ASGIApp, measures: RequestMeasures, elapsed: Callable[[], float] = time.perf_counter
    ) -> None:
        self._app, self._measures, self._elapsed = app, measures, elapsed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, seen, counted = self._elapsed(), _Seen(), False

        def count(status: int) -> None:
            nonlocal counted
            if not counted:
                counted = True
                method = scope["method"] if scope["method"] in METHODS else OTHER
                request = Answered(method=method, route=seen.route, status=f"{status // 100}xx")
                self._measures.see(request, self._elapsed() - begun)

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._app({**scope, _SEEN: seen}, receive, send_counted)
        except Exception:
            count(500)  # which is what the server answers
            raise
