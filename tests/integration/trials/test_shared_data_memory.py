"""The memory of the node's shared data servers: granted within a limit, counted, and taken back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.agent.home import Home
from trials.agent.sharing.requests import NotServedError, Order, Request
from trials.agent.sharing.servers import DataServers
from trials.files import to_json

REPOSITORY = Path(__file__).resolve().parents[3]


def a_request(length: int, memory_bytes: int = 24 << 20) -> Request:
    return Request(
        nonce="n",
        factory="tests.shared_datasets:Numbers",
        arguments={"length": length},
        order=Order(block_size=16),
        memory_bytes=memory_bytes,
        workers=1,
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TUNER_DATA_IDLE_EXIT_S", "0.2")
    found = Home(tmp_path / "home")
    found.make()
    spec: dict[str, Any] = {"environment": {}, "parameters": {}, "objective": "x", "seed": 0}
    local = {"python": sys.executable, "paths": [str(REPOSITORY)], "wake": ""}
    key = {"experiment_id": "e", "number": 1, "attempt": 1}
    attempt = {"spec": spec, "local": local, "nonce": "n", "key": key}
    (found.path / "attempt.json").write_bytes(to_json(attempt))
    return found


def test_memory_is_granted_until_the_nodes_share_is_used_up_and_the_largest_server_goes_first(home: Home) -> None:
    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path, memory_bytes=40 << 20)
        servers.open()
        first = await servers._requests._answer(a_request(10))
        assert first == await servers._requests._answer(a_request(10))
        await servers._requests._answer(a_request(20))
        assert servers.reserved_bytes() == 40 << 20  # the second was given what was left
        with pytest.raises(NotServedError, match="2 data servers have 40 MiB of the node's 40 MiB"):
            await servers._requests._answer(a_request(30))

        taken = servers.memory_bytes()
        assert all(bytes_taken > 1 << 20 for bytes_taken in taken.values())
        servers.keep_within(sum(taken.values()))
        await asyncio.sleep(0)
        assert servers.reserved_bytes() == 40 << 20
        pids = [server.pid for server in servers._servers.values()]
        servers.keep_within(0)
        while servers.reserved_bytes():
            await asyncio.sleep(0.01)
        await servers.close()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))

    asyncio.run(asyncio.wait_for(scene(), 120))
