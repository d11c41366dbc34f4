"""Fork servers that an agent which was killed has left: what the next agent does with each."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.agent.forks.server import Server
from trials.agent.forks.servers import FORK_SERVER_START_TIMEOUT_S, ForkServers
from trials.agent.home import Home
from trials.processes.identity import identity
from trials.wire.files import FILES_FORMAT, FORMAT

NUMBER = "k-abc"


class Left:
    """A server that is alive, and the agent after the one that has started it."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path / "home")
        self.home.make()
        self.forks = ForkServers(self.home, on_lost=lambda _: None)
        self.orders = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.orders.bind(str(path / "o"))
        self.write("config", {})

    def write(self, kind: str, content: dict[str, Any]) -> None:
        (self.home.forks / f"{NUMBER}.{kind}.json").write_text(json.dumps(content))

    def is_ready(self, **other: Any) -> None:
        said = {"id": NUMBER, "key": "k", "orders": self.orders.getsockname(), "problem": None, "supervises": False}
        state = {**identity(os.getpid()), **said, FORMAT: FILES_FORMAT, "shadowable": [], "files": {}, **other}
        self.write("state", state)

    def ordered(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                found.append(json.loads(self.orders.recv(1000)))
            except BlockingIOError:
                return found

    def files(self) -> list[str]:
        return [path.name for path in self.home.forks.iterdir() if path.name.startswith(NUMBER)]


def run_with(tmp_path: Path, work: Callable[[Left], None]) -> None:
    async def whole() -> None:
        left = Left(tmp_path)
        try:
            work(left)
        finally:
            left.forks._ends.close()
            left.orders.close()

    asyncio.run(whole())


def test_one_that_was_importing_is_adopted_once_it_is_ready(tmp_path: Path) -> None:
    """Before, nobody knew of it; and it did not end, for an agent was there."""

    def work(left: Left) -> None:
        left.forks.adopt()
        left.forks.look()
        assert left.forks._servers == {}
        left.is_ready()
        left.forks.look()
        left.forks.look()
        assert [server.id for server in left.forks._servers.values()] == [NUMBER]
        assert left.ordered() == []

    run_with(tmp_path, work)


@pytest.mark.parametrize("why", ["another has its place", "problem", "format"])
def test_one_that_is_of_no_use_is_told_to_end(tmp_path: Path, why: str) -> None:
    def work(left: Left) -> None:
        other = Server(left.home, number="k-other", key="k", orders="", state=left.home.path / "s")
        if why == "another has its place":
            left.forks._servers["k"] = other
        left.is_ready(**{"problem": {"problem": "threads"}, "format": {FORMAT: FILES_FORMAT + 1}}.get(why, {}))
        left.forks.adopt()
        left.forks.look()
        assert left.ordered() == [{"end": True}]
        assert list(left.forks._servers.values()) == ([other] if why == "another has its place" else [])

    run_with(tmp_path, work)


def test_of_one_that_was_killed_while_it_imported_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def work(left: Left) -> None:
        left.forks.adopt()
        now[0] += FORK_SERVER_START_TIMEOUT_S
        left.forks.look()
        assert left.files() != []
        now[0] += 1.0
        left.forks.look()
        assert left.files() == []

    run_with(tmp_path, work)
