"""The HTTP server: uvicorn's, made to cost nothing while nobody asks, and to let few threads read at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.types import ASGIApp

from tuner_service.api.channel_protocol import ChannelProtocol
from tuner_service.api.connection_limits import IDLE_TIMEOUT_S, BoundedHttpProtocol

# More threads would only wait for the GIL and for each other; with fewer, a few long reads keep short ones waiting.
READING_THREADS = 8
GRACEFUL_S = 2  # for requests under way when the service is told to end
AGENT_FRAME_BYTES = 8 << 20
STREAMS_END_S = 0.4  # for readers to take the end of their streams
HANDSHAKE_TIMEOUT_S = 10.0  # of TLS
SHUTDOWN_TIMEOUT_S = 2.0  # for the other side to say that it has taken the end
LOOK_AROUND_S = 1.0  # how often the date of the answers is set; uvicorn alone looks around ten times a second


def http_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_S,
        http=BoundedHttpProtocol,
        timeout_keep_alive=int(IDLE_TIMEOUT_S),
        ws=ChannelProtocol,
        ws_max_size=AGENT_FRAME_BYTES,
        ws_per_message_deflate=False,
    )


class Server(uvicorn.Server):
    """``listens`` is called once it does. It ends when ``may_go_on``, asked once a second, says no.

    ``looks`` is called once a second, too, and returns at once. ``told`` is called in the handler of a signal that
    tells it to end, ``ends`` when the server begins to: whoever sends an answer without an end finishes it then.
    """

    def __init__(  # noqa: PLR0913  # its connections with the rest of the service
        self,
        config: uvicorn.Config,
        *,
        listens: Callable[[], None],
        may_go_on: Callable[[], bool],
        ends: Callable[[], None],
        told: Callable[[], None] = lambda: None,
        looks: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(config)
        self._tls, self._looks, self._told = tls, looks, told
        self._listens, self._may_go_on, self._ends = listens, may_go_on, ends
        self._told_to_end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(READING_THREADS, thread_name_prefix="reading"))
        current_default_thread_limiter().total_tokens = READING_THREADS
        await super().startup(sockets if self._tls is None else [])
        if self._tls is not None:
            self.servers += [await self._secure_server(one, self._tls) for one in sockets or ()]
        self._listens()

    async def _secure_server(self, listening: socket.socket, tls: ssl.SSLContext) -> asyncio.Server:
        """Like uvicorn's own, which gives a handshake a minute."""
        config, state = self.config, self.server_state
        return await asyncio.get_running_loop().create_server(
            partial(BoundedHttpProtocol, config=config, server_state=state, app_state=self.lifespan.state),
            sock=listening,
            ssl=tls,
            backlog=config.backlog,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )

    async def main_loop(self) -> None:
        while self._may_go_on() and not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told_to_end.wait(), LOOK_AROUND_S)
            self._looks()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ends()
        asyncio.get_running_loop().call_later(STREAMS_END_S, self._abort_streams)
        await super().shutdown(sockets)

    def _abort_streams(self) -> None:
        """Of readers that do not read: their end waits for ever behind what they were sent before."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedHttpProtocol):
                connection.abort_stream()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._told()
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told_to_end.set)
