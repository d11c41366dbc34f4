"""Whoever is told that a node is drained, or takes trials again, has heard it of the node's agent."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from trials.wire.messages import Hello, NodeResources, ToAgent
from trials.wire.nodes import Drain, NodeFacts
from tuner_service.domain.errors import UnavailableError
from tuner_service.service import cluster
from tuner_service.service.cluster import AgentHub, Channel


class Connection:
    """Of an agent that keeps what it is told, and says so; one that is not ``heard`` loses it on its way."""

    def __init__(self, hub: AgentHub, *, drained: bool, heard: bool = True) -> None:
        self.hub, self.heard, self.told = hub, heard, list[bool]()
        resources = NodeResources(cpus=1, memory_bytes=1)
        hello = Hello(version=1, agent_id="n1", boot_id="b", host="h", pid=1, resources=resources)
        self.channel = Channel(
            hello=replace(hello, node=NodeFacts(drained=drained)), send=self._send, close=lambda: None
        )
        hub.add(self.channel)

    def _send(self, message: ToAgent) -> None:
        assert isinstance(message, Drain)
        self.told.append(message.on)
        if self.heard:
            asyncio.get_running_loop().call_soon(self.hub.set_node, self.channel, NodeFacts(drained=message.on))


@pytest.mark.parametrize("on", [True, False])
def test_it_is_done_once_the_agent_says_so(on: bool) -> None:
    hub = AgentHub()
    connection = Connection(hub, drained=not on)

    asyncio.run(hub.drain("n1", on=on))

    assert connection.channel.node.drained is on
    assert set(connection.told) == {on}


def test_what_a_connection_lost_that_was_about_to_end_is_told_on_the_next_one() -> None:
    hub = AgentHub()
    ending = Connection(hub, drained=True, heard=False)

    async def come_again() -> Connection:
        done = asyncio.create_task(hub.drain("n1", on=False))
        while not ending.told:
            await asyncio.sleep(0)
        hub.remove(ending.channel)
        await asyncio.sleep(0)
        again = Connection(hub, drained=True)
        await done
        return again

    assert asyncio.run(come_again()).channel.node.drained is False


def test_of_two_orders_at_once_the_later_one_holds() -> None:
    hub = AgentHub()
    connection = Connection(hub, drained=False, heard=False)

    async def order_twice() -> None:
        earlier = asyncio.create_task(hub.drain("n1", on=True))
        while not connection.told:
            await asyncio.sleep(0)
        later = asyncio.create_task(hub.drain("n1", on=False))
        await asyncio.sleep(0)
        assert not later.done(), "it is not drained, but will be"
        connection.heard = True
        await asyncio.gather(earlier, later)

    asyncio.run(order_twice())

    assert connection.channel.node.drained is False
    assert connection.told == sorted(connection.told, reverse=True), "the earlier one is not told after the later one"


def test_an_order_is_answered_by_what_the_agent_says_after_it() -> None:
    hub = AgentHub()
    connection = Connection(hub, drained=False)

    async def node_when_done() -> NodeFacts:
        await hub.drain("n1", on=False)
        return connection.channel.node

    assert asyncio.run(node_when_done()) is not connection.channel.hello.node


def test_who_does_not_say_so_in_time_is_named_and_who_is_away_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "DRAIN_TIMEOUT_S", 0.05)
    hub = AgentHub()
    connection = Connection(hub, drained=False, heard=False)
    with pytest.raises(UnavailableError, match=r"'n1' did not answer within 0\.05 s"):
        asyncio.run(hub.drain("n1", on=True))

    hub.remove(connection.channel)
    with pytest.raises(UnavailableError, match="'n1' is not connected"):
        asyncio.run(hub.drain("n1", on=True))
