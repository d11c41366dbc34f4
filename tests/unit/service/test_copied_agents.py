"""Two agents of one name: one that comes again, and one that runs in a copy of the other's home."""

from __future__ import annotations

import pytest

from trials.wire.messages import Hello, NodeResources
from trials.wire.nodes import NodeFacts
from tuner_service.domain.errors import ConflictError
from tuner_service.service.cluster import DISPLACED_LIMIT, AgentHub, Channel


def come(hub: AgentHub, process_id: str) -> Channel:
    resources = NodeResources(cpus=1, memory_bytes=1)
    node = NodeFacts(home_id="home", process_id=process_id)
    hello = Hello(version=1, agent_id="n1", boot_id="b", host="h", pid=1, resources=resources, node=node)
    channel = Channel(hello=hello, send=lambda _: None, close=lambda: None)
    hub.add(channel)
    return channel


def test_an_agent_that_was_started_anew_or_comes_again_takes_the_place_of_its_channel_before() -> None:
    hub = AgentHub()
    for process in ("first", "first", "second", "second", "third"):
        come(hub, process)
    assert [hello.node.process_id for hello in hub.agents()] == ["third"]


def test_of_two_agents_in_copies_of_one_home_the_one_that_comes_again_is_refused() -> None:
    """Else each would end the other's connection for ever, and with each the other's trials would be taken for lost."""
    hub = AgentHub()
    come(hub, "original")
    copy = come(hub, "copy")
    copy = come(hub, "copy")

    with pytest.raises(ConflictError, match="with a copy of this one's home, or this one's is the copy"):
        come(hub, "original")
    assert [hello.node.process_id for hello in hub.agents()] == ["copy"]

    hub.remove(copy)
    come(hub, "original")  # the copy has gone


def test_an_agent_of_an_older_version_which_names_no_process_is_believed() -> None:
    hub = AgentHub()
    for process in ("", "first", ""):
        come(hub, process)
    assert [hello.node.process_id for hello in hub.agents()] == [""]


def test_of_the_processes_that_had_a_name_the_newest_are_remembered() -> None:
    hub = AgentHub()
    channels = [come(hub, f"p{number}") for number in range(DISPLACED_LIMIT + 3)]
    assert channels[-1].displaced == tuple(f"p{number}" for number in range(2, DISPLACED_LIMIT + 2))
