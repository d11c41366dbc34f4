"""What an agent does again and again: one round of it fails, and others follow."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent import __main__ as main
from trials.agent import node_facts
from trials.agent.devices import node
from trials.agent.devices.node import NodeDevices
from trials.agent.home import Home
from trials.agent.node_facts import FactsOfNode
from trials.agent.sharing import servers
from trials.agent.sharing.servers import DataServers

SOON_S = 10.0  # for what happens at once, on a machine that is busy


class Failing:
    """Raises the first time that it is called; ``again`` once it is called after that."""

    def __init__(self) -> None:
        self.again = asyncio.Event()
        self._calls = 0

    def __call__(self, *_: object) -> None:
        self._calls += 1
        if self._calls == 1:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        self.again.set()

    async def later(self) -> None:
        self()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


async def goes_on(rounds: Coroutine[Any, Any, None], failing: Failing) -> None:
    running = asyncio.ensure_future(rounds)
    async with asyncio.timeout(SOON_S):
        await failing.again.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_the_attempts_are_looked_at_after_a_look_that_failed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "LOOK_S", 0.0)
    lock = os.open(home.agent / "lock", os.O_CREAT | os.O_RDWR)

    async def work() -> None:
        failing = Failing()
        agent: Any = SimpleNamespace(home=home, look_thoroughly=failing)
        wake: Any = SimpleNamespace(see_to_it=lambda: None)
        await goes_on(main._look_now_and_then(agent, lock, wake=wake, leave=lambda: None), failing)

    asyncio.run(work())
    os.close(lock)


def test_a_home_that_cannot_be_read_for_a_moment_was_not_moved(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.agent / "lock"
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", Failing())
        assert main._is_in_place(lock, path)
    path.unlink()
    assert not main._is_in_place(lock, path)
    os.close(lock)


def test_the_memory_of_data_servers_is_looked_at_after_a_look_that_failed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "LOOK_S", 0.0)

    async def work() -> None:
        failing, data = Failing(), DataServers(home, lambda _: None)
        monkeypatch.setattr(data._requests, "see_to_it", failing)
        await goes_on(data._look_now_and_then(), failing)

    asyncio.run(work())


def test_devices_are_read_after_a_reading_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "READ_S", 0.0)

    async def work() -> None:
        failing, devices = Failing(), NodeDevices(list)
        devices._had_some = True
        monkeypatch.setattr(devices, "refresh", failing.later)
        await goes_on(devices.watch(), failing)

    asyncio.run(work())


def test_what_changes_on_a_node_is_told_after_a_look_that_failed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "LOOK_S", 0.0)

    async def work() -> None:
        failing, facts = Failing(), FactsOfNode(home)
        monkeypatch.setattr(facts, "_keep", failing)
        await goes_on(facts.keep_told(lambda _: asyncio.sleep(0)), failing)

    asyncio.run(work())


def test_a_node_whose_home_cannot_be_read_says_so_and_is_as_drained_as_before(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it could not even greet its service."""
    facts = FactsOfNode(home)
    facts.drain(on=True)
    stat = Path.stat

    def unreadable(path: Path, **options: Any) -> os.stat_result:
        if path.name == "drained":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", unreadable)
    assert facts.now().drained
