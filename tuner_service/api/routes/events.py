"""Streams of server-sent events: what changes, as it changes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tuner_service.api.auth import is_still_allowed
from tuner_service.api.connection_limits import STREAM_WRITER
from tuner_service.api.dependencies import CurrentServices
from tuner_service.service.events import EventHub, Stream
from tuner_service.service.experiments import Services
from tuner_service.service.patches import ALL

MAX_STREAM_S = 86_400.0
LastEventId = Annotated[
    str, Header(alias="Last-Event-ID", description="the id of the last event that was taken: what came after it")
]
Timeout = Annotated[
    float | None,
    Query(ge=0, le=MAX_STREAM_S, description="the stream ends after so many seconds; 0: after its first event"),
]

router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get("/events")
async def stream_events(
    request: Request, services: CurrentServices, *, last_event_id: LastEventId = "", timeout: Timeout = None
) -> Response:
    """What happens to experiments, quota groups, agents and devices."""
    return await _stream(request, services, ALL, last_event_id=last_event_id, timeout_s=timeout)


@router.get("/experiments/{experiment_id}/events")
async def stream_experiment_events(
    request: Request,
    experiment_id: str,
    services: CurrentServices,
    *,
    last_event_id: LastEventId = "",
    timeout: Timeout = None,
) -> Response:
    """What happens to one experiment and to its trials."""
    return await _stream(request, services, experiment_id, last_event_id=last_event_id, timeout_s=timeout)


async def _stream(
    request: Request, services: Services, topic: str, *, last_event_id: str, timeout_s: float | None
) -> Response:
    hub = services.events
    stream = hub.open(topic, is_still_allowed(request))
    try:
        first = await hub.begin(stream, last_event_id)
    except BaseException:
        hub.close_stream(stream)
        raise
    return EventResponse(hub, stream, first, timeout_s=timeout_s)


class EventResponse(Response):
    """Sends ``first`` and then what comes in ``stream``, until that ends, the reader has gone, or the time is over."""

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, stream: Stream, first: bytes, *, timeout_s: float | None = None) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub, self._stream, self._first, self._timeout_s = hub, stream, first, timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(self._watch(receive))
        timeout = self._timeout_s
        timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, self._stream.end)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._stream.write = scope.get("extensions", {}).get(STREAM_WRITER, self._stream.write)
            events: bytes | None = self._first
            while events is not None:
                await send({"type": "http.response.body", "body": events, "more_body": True})
                events = await self._stream.next()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._hub.close_stream(self._stream)
            watch.cancel()
            if timer is not None:
                timer.cancel()  # or what it would end stays in memory until then

    async def _watch(self, receive: Receive) -> None:
        """A reader that has gone sends nothing, and is found out here at once."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stream.end()
