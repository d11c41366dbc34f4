"""Agents that do not read what they are sent, on real sockets: the service notices, and waits for none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.api_server import serving
from tests.api_service import AGENT_TOKEN, ApiService
from tests.deaf_agent import DeafAgent, deaf_agent
from tests.waiting import wait_until
from trials.wire.limits import CHECKPOINT_INLINE_BYTES
from trials.wire.messages import PROTOCOL_VERSION, BlobWanted, Hello, NodeResources
from tuner_service.api import agents, asked_by_agents, channel_protocol, connection_limits
from tuner_service.dispatcher.commands import AgentConnected, AgentDisconnected
from tuner_service.service.cluster import AgentHub

PING_S = 0.2


class Scene:
    def __init__(self, url: str, api: ApiService, hub: AgentHub, agent: DeafAgent, asked: list[str]) -> None:
        self.url, self.api, self.hub, self.agent, self._asked = url, api, hub, agent, asked

    def told(self, kind: type) -> bool:
        return any(isinstance(command, kind) for command in list(self.api.runner.commands))

    def lets_in(self) -> bool:
        """Another connection of the agent."""
        channel = f"{self.url.replace('http', 'ws')}/api/v1/agents/local/channel"
        try:
            with connect(channel, additional_headers={"Authorization": f"Bearer {AGENT_TOKEN}"}):
                return True
        except InvalidStatus:
            return False

    def send_it_much(self) -> None:
        """More than there is room for on the way."""
        hello = Hello(
            version=PROTOCOL_VERSION,
            agent_id="local",
            boot_id="b",
            host="h",
            pid=1,
            resources=NodeResources(cpus=1, memory_bytes=1),
        )
        self.agent.say(hello, BlobWanted(digest="a" * 64))
        wait_until(lambda: self.told(AgentConnected) and bool(self._asked))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scene]]:
    asked: list[str] = []

    def blob_for(_: object, digest: str, *, agent_id: str) -> bytes:
        asked.append(f"{agent_id} {digest}")
        return bytes(CHECKPOINT_INLINE_BYTES)

    monkeypatch.setattr(asked_by_agents, "blob_for", blob_for)
    with ExitStack() as stack:

        def make(*, ping_s: float = 20.0) -> Scene:
            hub = AgentHub()
            api = stack.enter_context(serving(tmp_path, hub=hub, ping_s=ping_s))
            url = json.loads((tmp_path / "service.json").read_text())["url"]
            agent = stack.enter_context(deaf_agent(url, "local", AGENT_TOKEN))
            return Scene(url, api, hub, agent, asked)

        yield make


def test_an_agent_that_answers_no_ping_is_away_whatever_waits_to_be_sent_to_it(scene: Callable[..., Scene]) -> None:
    stopped = scene(ping_s=PING_S)
    stopped.send_it_much()

    wait_until(lambda: not stopped.hub.agents() and stopped.told(AgentDisconnected))


def test_the_place_of_an_agent_that_leaves_and_does_not_read_is_given_to_others(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr(channel_protocol, "LAST_BYTES_S", 0.2)
    leaving = scene()
    leaving.send_it_much()
    leaving.agent.leave()
    wait_until(lambda: not leaving.hub.agents() and leaving.told(AgentDisconnected))
    monkeypatch.setattr(connection_limits, "MAX_CHANNELS", 1)

    wait_until(leaving.lets_in)
