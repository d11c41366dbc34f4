"""The agents' channels on the wire: uvicorn's protocol, made to end also where the other side does not read.

A transport that is closed while it has something to send waits for ever for the other side to take it, and tells
nobody that the connection is over. An agent that was stopped, or whose machine is cut off, would count as connected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LAST_BYTES_S = 10.0  # for the other side to take what is left, once the application is done with the channel


class ChannelProtocol(WebSocketsSansIOProtocol):
    """A channel is over once a ping is not answered in time, and LAST_BYTES_S after its application has ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._aborting: asyncio.TimerHandle | None = None

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            self._aborting = self.loop.call_later(LAST_BYTES_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._aborting is not None:
            self._aborting.cancel()
        super().connection_lost(exc)
