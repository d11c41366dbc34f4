"""A connection that is closed while the other side does not take the last bytes does not keep its place for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tuner_service.api import connection_limits
from tuner_service.api.connection_limits import BoundedHttpProtocol

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


class FullTransport:
    """Of a connection whose other side takes nothing more, with little left to be taken."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()
        self._is_closing = False

    def get_extra_info(self, _: str) -> Any: ...

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 1

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self.aborted.set()


async def answer(_: Any, __: Any, send: Callable[[dict[str, Any]], Any]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    "said",
    [b"HELO\r\n\r\n", HEALTH + b"connection: close\r\n\r\n", HEALTH + b"\r\n"],
    ids=["it is refused", "the answer is the last one", "nothing more is asked for"],
)
def test_who_does_not_take_the_last_bytes_is_hung_up_on(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 0.0)

    async def scene() -> None:
        config = uvicorn.Config(answer, log_config=None, lifespan="off", timeout_keep_alive=0)  # type: ignore[arg-type]
        config.load()
        transport = FullTransport()
        protocol = BoundedHttpProtocol(config=config, server_state=ServerState(), app_state={})
        protocol.connection_made(transport)  # type: ignore[arg-type]
        protocol.data_received(said)
        await asyncio.wait_for(transport.aborted.wait(), 10)

    asyncio.run(scene())
