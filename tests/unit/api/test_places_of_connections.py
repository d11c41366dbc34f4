"""Agents and all others have places of their own among the connections of a service."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tuner_service.api import connection_limits
from tuner_service.api.channel_protocol import ChannelProtocol
from tuner_service.api.connection_limits import MAX_CHANNELS, MAX_CONNECTIONS, BoundedHttpProtocol

UPGRADE = (
    b"GET /api/v1/agents/a/channel HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Transport:
    def __init__(self) -> None:
        self.written, self._is_closing = b"", False

    def get_extra_info(self, _: str) -> Any: ...

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True


class Doors:
    """``connected`` gives the transport of a new connection that has said something."""

    def __init__(self, *, agents: int) -> None:
        self._config = uvicorn.Config(self._nothing, log_config=None, lifespan="off", ws=ChannelProtocol)  # type: ignore[arg-type]
        self._config.load()
        self._state = ServerState()
        for _ in range(agents):
            self._state.connections.add(ChannelProtocol(config=self._config, server_state=self._state, app_state={}))

    @staticmethod
    async def _nothing(_: Any, __: Any, ___: Any) -> None: ...

    def connected(self, said: bytes) -> Transport:
        transport = Transport()
        protocol = BoundedHttpProtocol(config=self._config, server_state=self._state, app_state={})
        protocol.connection_made(transport)  # type: ignore[arg-type]
        protocol.data_received(said)
        return transport


def opening(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))


def scene(act: Callable[[], None]) -> None:
    async def run() -> None:
        act()

    asyncio.run(run())


def test_however_many_agents_are_connected_people_find_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count for nothing, so that five hundred nodes do not lock out whoever wants to stop a search."""
    opening(monkeypatch, 100_000)

    def act() -> None:
        doors = Doors(agents=MAX_CONNECTIONS + 1)
        asking = [doors.connected(b"GET / HTTP/1.1\r\n") for _ in range(3)]
        assert not any(one.is_closing() for one in asking)

    scene(act)


@pytest.mark.parametrize(("files", "most"), [(100_000, MAX_CHANNELS), (1_024, 668), (100, 100)])
def test_one_more_agent_than_there_is_room_for_is_told_so(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    opening(monkeypatch, files)

    def act() -> None:
        refused = Doors(agents=most).connected(UPGRADE)
        assert b" 503 " in refused.written
        assert f"{most} agents".encode() in refused.written
        assert (b"ulimit" in refused.written) is (files < 100_000)
        assert refused.is_closing()

    scene(act)


def test_where_few_files_may_be_opened_agents_leave_places_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    opening(monkeypatch, 1_024)
    monkeypatch.setattr(connection_limits, "KEPT_FOR_OTHERS", 2)

    def act() -> None:
        doors = Doors(agents=1_024 - connection_limits.OTHER_FILES - 2)
        busy = [doors.connected(b"GET / HTTP/1.1\r\n") for _ in range(2)]
        doors.connected(b"GET / HTTP/1.1\r\n")
        assert [one.is_closing() for one in busy] == [True, False], "the oldest that waits has made room"

    scene(act)
