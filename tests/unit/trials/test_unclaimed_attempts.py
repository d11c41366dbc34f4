"""What an agent does with attempts that a server was given and has not claimed; no process is started."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent import agent as agents
from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt
from trials.agent.forks import servers
from trials.agent.forks.server import Server
from trials.agent.forks.servers import CLAIM_TIMEOUT_S, SUPERVISORS_HANG_PAUSE_S
from trials.agent.home import Home
from trials.agent.supervision.orders import send_order
from trials.files import read_json
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Stop

NOBODY = 2**22 + 1  # no process has this number


class Node:
    """An agent with attempts that a server of supervisors has taken the orders for; ``spawned`` are started without."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.spawned, self.fails = 100.0, [], {}
        self.spawned: list[str]
        self.fails: dict[str, int]  # by nonce: what the next start of its supervisor fails with
        self.home = Home(path)
        self.home.make()
        self.agent = Agent(self.home)
        self.starts: list[Any] = []
        self.killed: list[str] = []
        self.server = self.serve()
        monkeypatch.setattr(servers, "of_supervisors", lambda *_, **__: SimpleNamespace(key="k"))
        monkeypatch.setattr(servers, "send_order", lambda *_: True)
        monkeypatch.setattr(self.agent._forks, "_start", self.starts.append)  # no other one is to be had
        monkeypatch.setattr(agents, "spawn_supervisor", self._spawn)
        monkeypatch.setattr(agents, "NO_ROOM_PAUSE_S", 0.0)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def serve(self) -> Server:
        """There is a server, which is ready."""
        server = Server(self.home, number="1", key="k", orders="o", state=self.home.path / "s")
        server.supervises = True
        server.is_alive = lambda: True  # type: ignore[method-assign]
        server.kill = lambda: self.killed.append(server.id)  # type: ignore[method-assign]
        server.ready.set()
        self.agent._forks._ends._descriptors["1"] = set()  # it is watched
        self.agent._forks._servers["k"] = server
        return server

    def _spawn(self, folder: Path, *, why: str) -> Any:
        nonce = folder.name.partition("-")[2]
        number = self.fails.pop(nonce, 0)
        if number:
            raise OSError(number, os.strerror(number))
        self.spawned.append(nonce)
        return SimpleNamespace(pid=NOBODY, poll=lambda: None, returncode=None)

    async def launch(self, number: int) -> HeldAttempt:
        key, nonce = AttemptKey(experiment_id="e", number=number, attempt=1), f"n{number}"
        folder = self.home.attempt_folder(key, nonce)
        folder.mkdir(parents=True)
        held = HeldAttempt(folder, key=key, nonce=nonce, lineage="l")
        assert await self.agent._forks.supervise(folder, nonce=nonce, why="it asks for it")
        self.agent._hold(held)
        return held

    async def settled(self) -> None:
        while self.agent._tasks:
            await asyncio.gather(*self.agent._tasks)


@pytest.fixture
def on_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Node], Awaitable[None]]], None]:
    def run(work: Callable[[Node], Awaitable[None]]) -> None:
        async def whole() -> None:
            node = Node(tmp_path / "home", monkeypatch)
            try:
                await work(node)
            finally:
                node.agent._forks._servers.clear()
                await node.agent.close()

        asyncio.run(whole())

    return run


OnNode = Callable[[Callable[[Node], Awaitable[None]]], None]


def test_an_order_that_its_server_does_not_follow_is_followed_by_the_agent_after_its_time(on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        await node.launch(1)
        claimed = await node.launch(2)
        (claimed.folder / "claim.json").write_text("{}")
        node.agent.look_thoroughly()
        assert node.spawned == [], "it has its time"

        node.now += CLAIM_TIMEOUT_S
        node.agent._forks.look_for_unclaimed()
        assert node.spawned == ["n1"]
        assert not node.agent._forks.has_given("n1")
        assert node.agent._forks.has_given("n2")

        node.agent._forks.look_for_unclaimed()
        assert node.spawned == ["n1"]

    on_node(work)


def test_a_server_that_hangs_is_ended_and_costs_no_other_launch_its_time(on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        forks = node.agent._forks
        await node.launch(1)
        node.now += CLAIM_TIMEOUT_S
        forks.look_for_unclaimed()
        assert node.killed == ["1"]
        assert not await forks.supervise(node.home.path, nonce="n2", why="w"), "its supervisor is started without one"
        assert node.starts == []

        for hangs in (1, 2):
            node.now += hangs * SUPERVISORS_HANG_PAUSE_S - 1
            await forks.supervise(node.home.path, nonce="n2", why="w")
            assert len(node.starts) == hangs - 1
            node.now += 1
            await forks.supervise(node.home.path, nonce="n2", why="w")
            assert len(node.starts) == hangs, "twice as long after each in a row"
            node.serve()
            await node.launch(10 * hangs)
            node.now += CLAIM_TIMEOUT_S
            forks.look_for_unclaimed()
        node.serve()
        claimed = await node.launch(40)
        (claimed.folder / "claim.json").write_text("{}")
        node.now += CLAIM_TIMEOUT_S
        forks.look_for_unclaimed()
        assert forks._hangs == 0
        assert len(node.killed) == 3

    on_node(work)


def test_a_stop_of_what_nobody_has_claimed_is_its_end(on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        held = await node.launch(1)
        node.agent.stop(Stop(key=held.key, nonce="n1", grace_s=5.0, reason="stopped_by_user"))

        assert held.exit is not None
        assert (held.exit.cause, held.exit.stop_reason) == ("stopped", "stopped_by_user")
        assert read_json(str(held.folder / "claim.json")) is not None, "nobody starts it any more"
        for reason, is_hurried in (("experiment_stopped", False), ("stopped_by_user", True)):
            node.agent.stop(Stop(key=held.key, nonce="n1", grace_s=5.0, reason=reason))
            assert held.hurried.is_set() is is_hurried, "what it has left may be wanted still, or not"

    on_node(work)


def test_a_stop_for_which_the_disk_has_no_room_leaves_the_attempt_to_its_supervisor(
    on_node: OnNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def work(node: Node) -> None:
        held = await node.launch(1)
        monkeypatch.setattr("trials.agent.attempts.write_durably", full)
        node.agent.stop(Stop(key=held.key, nonce="n1", grace_s=5.0, reason="stopped_by_user"))

        assert held.exit is None
        assert not (held.folder / "claim.json").exists(), "else nobody could tell its end"
        assert (held.folder / "stop.json").exists()

    on_node(work)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ENOSPC])
def test_a_server_that_ends_while_little_is_left_costs_no_launch(number: int, on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        held = [await node.launch(1), await node.launch(2)]
        node.fails = {"n1": number}
        del node.agent._forks._servers["k"]
        node.agent._forks._ended(node.server)
        assert node.spawned == ["n2"], "each is tried by itself"

        node.agent.look_thoroughly()
        await node.settled()
        assert node.spawned == ["n2", "n1"]
        assert [one.exit for one in held] == [None, None]

    on_node(work)


def test_one_that_cannot_be_started_at_all_has_failed_and_the_others_are_started(on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        held = [await node.launch(1), await node.launch(2)]
        node.fails = {"n1": errno.EPERM}
        del node.agent._forks._servers["k"]
        node.agent._forks._ended(node.server)
        await node.settled()

        assert held[0].exit is not None
        assert os.strerror(errno.EPERM) in held[0].exit.tail
        assert node.spawned == ["n2"]

    on_node(work)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_one_that_waits_for_room_is_started_also_where_no_order_can_be_sent(
    number: int, on_node: OnNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    async def work(node: Node) -> None:
        held = await node.launch(1)
        node.fails = {"n1": number}
        monkeypatch.setattr(servers, "send_order", send_order)
        monkeypatch.setattr("socket.socket", refuse)
        node.agent._forks._ended(node.server)
        await node.settled()
        monkeypatch.undo()

        assert node.spawned == ["n1"]
        assert held.exit is None

    on_node(work)


def test_a_stop_while_an_order_waits_for_room_leaves_nothing_with_the_server(on_node: OnNode) -> None:
    async def work(node: Node) -> None:
        held = await node.launch(1)
        node.agent.stop(Stop(key=held.key, nonce="n1", grace_s=5.0, reason="stopped_by_user"))
        node.server.given["n1"] = held.folder  # it was taken after the stop
        node.server.claimed_by["n1"] = node.now
        node.agent.look_thoroughly()

        assert not node.agent._forks.has_given("n1")

    on_node(work)


def test_an_order_for_which_there_is_no_descriptor_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("socket.socket", refuse)

    assert not send_order("there", {"start": "here"})
