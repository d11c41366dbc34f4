"""One agent's channel: what is said on it, in which order, and in which version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from trials.wire.attempt import AttemptKey
from trials.wire.encoding import encode
from trials.wire.launch import LaunchSpec
from trials.wire.limits import NOT_UNDERSTOOD_LIMIT, REPORT_BATCH_LINES
from trials.wire.messages import Acknowledge, Hello, Launch, NodeResources, Reports, Welcome
from tuner_service.api.agents import _Connection, _trouble
from tuner_service.dispatcher.commands import AgentConnected, AgentDisconnected, AttemptExited, ReportsReceived
from tuner_service.service.cluster import AgentHub

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
SPEC = LaunchSpec(command=("python",), parameters={}, seed=1, objective="loss")


def a_hello(**fields: Any) -> Hello:
    resources = NodeResources(cpus=1, memory_bytes=1)
    whole: dict[str, Any] = {"version": 1, "supported": (1, 2), "agent_id": "a", "boot_id": "b", "host": "h", "pid": 1}
    return Hello(**(whole | {"resources": resources} | fields))


class Script:
    """The other side: says its frames, then leaves; and the service behind, which does as it is told."""

    def __init__(self, frames: list[str], on_command: Callable[[AgentHub, Any], None] = lambda *_: None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.commands: list[Any] = []
        self._frames = frames
        self._on_command = on_command
        self.hub = AgentHub()

    def run(self, hello: Hello) -> None:
        services = SimpleNamespace(
            hub=self.hub, runner=self, experiments=SimpleNamespace(clock=SimpleNamespace(now=lambda: 1.0))
        )

        async def talk() -> None:
            await _Connection(self, services, hello).run()

        asyncio.run(talk())

    def submit(self, command: Any) -> Future[None]:
        self.commands.append(command)
        self._on_command(self.hub, command)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self._frames:
            return {"type": "websocket.receive", "text": self._frames.pop(0)}
        return {"type": "websocket.disconnect"}

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def close(self, code: int) -> None: ...


def welcome(hub: AgentHub, command: Any) -> None:
    if isinstance(command, AgentConnected):
        hub.send("a", Welcome(version=2, lineage="l"))


def test_nothing_is_said_before_the_welcome() -> None:
    def late_then_welcome(hub: AgentHub, command: Any) -> None:
        if isinstance(command, AgentConnected):
            hub.send("a", Acknowledge(nonce="of the connection before", sequence=3))
            welcome(hub, command)
            hub.send("a", Acknowledge(nonce="n", sequence=4))

    script = Script([], late_then_welcome)
    script.run(a_hello())

    assert [message["kind"] for message in script.sent] == ["welcome", "acknowledge"]
    assert script.sent[1]["nonce"] == "n"
    assert isinstance(script.commands[-1], AgentDisconnected)


@pytest.mark.parametrize(("hello", "version"), [({}, 2), ({"supported": ()}, 1), ({"supported": (1,)}, 1)])
def test_the_welcome_names_the_newest_common_version(hello: dict[str, Any], version: int) -> None:
    script = Script([], welcome)
    script.run(a_hello(**hello))

    assert script.sent[0]["version"] == version
    assert ("checkpoint_store" in script.sent[0]) == (version == 2)


@pytest.mark.parametrize(
    ("needs", "launched"), [({}, True), ({"preload": ("torch",)}, True), ({"memory_bytes": 1}, False)]
)
def test_an_older_agent_is_told_a_launch_without_what_is_new_or_the_attempt_fails(
    needs: dict[str, Any], launched: bool
) -> None:
    spec = LaunchSpec(command=("python",), parameters={}, seed=1, objective="loss", **needs)

    def launch(hub: AgentHub, command: Any) -> None:
        welcome(hub, command)
        if isinstance(command, AgentConnected):
            hub.send("a", Launch(key=KEY, nonce="n", lineage="l", spec=spec))

    script = Script([], launch)
    script.run(a_hello(supported=()))

    assert [message["kind"] for message in script.sent] == (["welcome", "launch"] if launched else ["welcome"])
    exits = [command for command in script.commands if isinstance(command, AttemptExited)]
    assert bool(exits) != launched
    for command in exits:
        assert (command.exit.cause, command.nonce, command.last_sequence) == ("launch_failed", "n", 0)
        assert "agent 'a' speaks version 1 of the protocol, the service 2: launch.spec.memory_by" in command.exit.tail


def test_more_lines_in_one_message_than_an_agent_sends_are_not_taken() -> None:
    def reports(count: int) -> str:
        lines = tuple("{}" for _ in range(count))
        return encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=lines))

    script = Script([reports(REPORT_BATCH_LINES), reports(REPORT_BATCH_LINES + 1)], welcome)
    script.run(a_hello())

    taken = [command for command in script.commands if isinstance(command, ReportsReceived)]
    assert [len(command.records) for command in taken] == [REPORT_BATCH_LINES]
    assert [message["about"] for message in script.sent if message["kind"] == "not_understood"] == ["reports"]


def test_what_is_not_understood_is_answered_a_limited_number_of_times_and_never_in_return() -> None:
    strange = ['{"kind": "dance"}'] * (NOT_UNDERSTOOD_LIMIT + 5)
    script = Script(['{"kind": "not_understood"}', *strange], welcome)
    script.run(a_hello())
    answers = [message for message in script.sent if message["kind"] == "not_understood"]
    assert len(answers) == NOT_UNDERSTOOD_LIMIT - 1
    assert {answer["about"] for answer in answers} == {"dance"}

    older = Script(['{"kind": "dance"}'], welcome)
    older.run(a_hello(supported=()))
    assert [message["kind"] for message in older.sent] == ["welcome"]


@pytest.mark.parametrize(
    ("hello", "trouble"),
    [
        ({}, ""),
        ({"version": 2, "supported": (2, 3)}, ""),
        ({"version": 2, "supported": ()}, ""),
        ({"version": 3, "supported": (3, 4)}, "the agent speaks version 3, 4, the service 2 (and takes 1, 2)"),
        ({"version": 99, "supported": ()}, "the agent speaks version 99, the service 2 (and takes 1, 2)"),
        ({"agent_id": "b"}, "the hello of agent 'b' came on the channel of 'a'"),
    ],
)
def test_a_hello_is_refused_when_there_is_no_common_version_or_it_is_anothers(
    hello: dict[str, Any], trouble: str
) -> None:
    assert _trouble(a_hello(**hello), "a") == trouble
