"""A stream of events that is to end after some time leaves nothing behind when its reader goes sooner."""

from __future__ import annotations

import asyncio
import gc
import weakref

from tests.api_service import an_api_service
from tuner_service.api.routes.events import EventResponse
from tuner_service.service.patches import ALL


def test_a_stream_whose_reader_has_gone_is_not_kept_for_the_time_that_it_was_asked_for() -> None:
    hub = an_api_service().services.events

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def unread(_: object) -> None:
        return

    async def read() -> weakref.ref[object]:
        stream = hub.open(ALL, lambda: True)
        await EventResponse(hub, stream, b"first", timeout_s=86_400.0)({"type": "http"}, gone, unread)
        return weakref.ref(stream)

    async def scene() -> None:
        kept = await read()
        await asyncio.sleep(0)  # the task that saw the reader go has ended
        gc.collect()
        assert kept() is None

    try:
        asyncio.run(scene())
    finally:
        hub.close()
