"""The version of the database for the event loop, which waits for no server."""

from __future__ import annotations

import asyncio

from tuner_service.ports import Queries


async def version_of(queries: Queries) -> int | None:
    """As ``Queries.version``; where that asks a server, in a thread: a server that hangs must not stop the loop."""
    return await asyncio.to_thread(queries.version) if queries.version_waits else queries.version()
