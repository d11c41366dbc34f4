"""One agent's channel: what is said on it, and in which order."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from trials.wire import nodes as wire
from trials.wire.attempt import AttemptKey
from trials.wire.devices import DevicesChanged, NodeDevice
from trials.wire.encoding import encode
from trials.wire.handshake import Leave
from trials.wire.limits import NOT_UNDERSTOOD_LIMIT, REPORT_BATCH_LINES
from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    BlobOffered,
    DeleteCheckpoint,
    Exited,
    Hello,
    NodeResources,
    ObservedAttempt,
    Pong,
    Refused,
    RemoveExperiment,
    Reports,
    Welcome,
)
from trials.wire.nodes import NodeFacts
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.api import agents
from tuner_service.api.agents import _Connection, _greeted
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    BlobReceived,
    NodeChanged,
    ReportsReceived,
)
from tuner_service.domain.errors import ConflictError, UnavailableError
from tuner_service.service.cluster import AgentHub
from tuner_service.service.hanging_commits import Outcomes

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
RECORD = ExitRecord(cause=ExitCause.EXITED, code=0)


def a_hello(**fields: Any) -> Hello:
    resources = NodeResources(cpus=1, memory_bytes=1)
    whole: dict[str, Any] = {"version": PROTOCOL_VERSION, "agent_id": "a", "boot_id": "b", "host": "h", "pid": 1}
    return Hello(**(whole | {"resources": resources} | fields))


class Script:
    """The other side: says its frames, then leaves; and the service behind, which does as it is told."""

    def __init__(self, frames: list[str], on_command: Callable[[AgentHub, Any], None] = lambda *_: None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.commands: list[Any] = []
        self.hangs = ""  # what is wrong with the commit at hand
        self._frames = frames
        self._on_command = on_command
        self.hub = AgentHub()
        self.now = 1.0  # by its clock

    def run(self, hello: Hello) -> None:
        asyncio.run(self.talk(hello))

    async def talk(self, hello: Hello) -> None:
        clock = SimpleNamespace(now=lambda: self.now)
        services: Any = SimpleNamespace(
            hub=self.hub, runner=self, queries=None, experiments=SimpleNamespace(clock=clock)
        )
        await _Connection(self, services, hello).run()  # type: ignore[arg-type]

    def submit(self, command: Any) -> Future[None]:
        self.commands.append(command)
        self._on_command(self.hub, command)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def commit_hangs(self) -> str:
        return self.hangs

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
        hub.send("a", Welcome(version=PROTOCOL_VERSION, lineage="l"))


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


@pytest.mark.parametrize("heard", [True, False])
def test_a_deletion_is_owed_to_an_agent_until_it_has_answered_the_ping_behind_it(heard: bool) -> None:
    def welcome_and_delete(hub: AgentHub, command: Any) -> None:
        welcome(hub, command)
        if isinstance(command, AgentConnected):
            hub.welcomed("a")
            if not deleted:
                deleted.append(RemoveExperiment(experiment_id="e1"))
                hub.send_to_all(deleted[0])

    deleted: list[RemoveExperiment] = []
    script = Script([encode(Pong())] if heard else [], welcome_and_delete)
    script.run(a_hello())
    assert kinds(script) == ["welcome", "remove_experiment", "ping"]

    script.sent.clear()
    script.run(a_hello())
    again = [] if heard else ["remove_experiment", "ping"]
    assert kinds(script) == ["welcome", *again]


@pytest.mark.parametrize(("ahead_s", "told"), [(0.0, 50.0), (100.0, None), (-100.0, None)])
def test_a_node_whose_clock_is_off_is_not_told_when_what_it_removes_was_saved(
    ahead_s: float, told: float | None
) -> None:
    """It compares that with the time of the file, and would keep each one for ever where its clock is ahead."""

    def welcome_and_delete(hub: AgentHub, command: Any) -> None:
        welcome(hub, command)
        if isinstance(command, AgentConnected):
            hub.send("a", DeleteCheckpoint(nonce="n", name="step-1", saved_at=50.0))

    script = Script([], welcome_and_delete)
    script.run(a_hello(node=NodeFacts(clock=script.now + ahead_s)))

    assert script.sent[1]["saved_at"] == told


def test_the_clock_of_a_node_that_is_set_while_it_is_connected_is_known() -> None:
    seen: list[float] = []

    def note(hub: AgentHub, command: Any) -> None:
        welcome(hub, command)
        if isinstance(command, NodeChanged):
            seen.extend(channel.clock_ahead_s for channel in hub.channels())

    told = [encode(wire.NodeChanged(node=NodeFacts(clock=clock))) for clock in (1.2, 3_601.0, 0.0)]
    Script(told, note).run(a_hello(node=NodeFacts(clock=1.0)))

    assert seen == [0.0, 3_600.0, 3_600.0]


@pytest.mark.parametrize("clock", [math.nan, math.inf, -math.inf, 1e300])
def test_a_clock_that_can_be_none_is_not_believed(clock: float) -> None:
    """It would stand in the list of nodes, which is no JSON then."""
    seen: list[float] = []

    def note(hub: AgentHub, command: Any) -> None:
        welcome(hub, command)
        if isinstance(command, AgentConnected | NodeChanged):
            seen.extend(channel.clock_ahead_s for channel in hub.channels())

    Script([encode(wire.NodeChanged(node=NodeFacts(clock=clock)))], note).run(a_hello(node=NodeFacts(clock=clock)))

    assert set(seen) == {0.0}


@pytest.mark.parametrize(
    "told",
    [
        DevicesChanged(devices=(), peaks={"n": 1 << 70}),
        DevicesChanged(devices=(), peaks={"n": -1}),
        DevicesChanged(devices=(NodeDevice(uuid="u", name="n", memory_bytes=10**400),)),
    ],
)
def test_sizes_that_no_device_has_are_not_understood(told: DevicesChanged) -> None:
    script = Script([encode(told)], welcome)
    script.run(a_hello())

    assert kinds(script) == ["welcome", "not_understood"]
    assert [type(command) for command in script.commands] == [AgentConnected, AgentDisconnected]


def kinds(script: Script) -> list[str]:
    """Of what was sent, also of messages that came in one frame."""
    return [one["kind"] for sent in script.sent for one in (sent if isinstance(sent, list) else [sent])]


def test_while_a_commit_hangs_an_agent_that_connects_leaves_no_command_however_often_it_tries() -> None:
    script = Script([], welcome)
    script.hangs = "a commit has not returned for 12 s"
    for _ in range(3):
        script.run(a_hello())

    assert (script.commands, script.sent) == ([], []), "it is told nothing final"
    script.hangs = ""
    script.run(a_hello())
    assert [message["kind"] for message in script.sent] == ["welcome"]


@pytest.mark.parametrize("hangs", ["", "a commit has not returned for 12 s"])
def test_while_a_commit_hangs_reports_and_checkpoints_stay_with_their_agent(hangs: str) -> None:
    """They would wait in memory, and come again each minute."""
    data = b"the bytes of a checkpoint"

    class Bringing(Script):
        async def receive(self) -> dict[str, Any]:
            self.hangs = hangs
            frame = await super().receive()
            return frame if frame.get("text") != "the bytes" else {"type": "websocket.receive", "bytes": data}

    offered = BlobOffered(digest=hashlib.sha256(data).hexdigest(), size=len(data))
    script = Bringing(
        [encode(Reports(key=KEY, nonce="n", first_sequence=0, lines=())), encode(offered), "the bytes"], welcome
    )
    script.run(a_hello())

    taken = {type(command) for command in script.commands} - {AgentConnected, AgentDisconnected}
    assert taken == (set() if hangs else {ReportsReceived, BlobReceived})
    assert [message["kind"] for message in script.sent] == ["welcome", "busy" if hangs else "blob_stored"]


def test_an_agent_whose_welcome_waits_for_a_commit_that_hangs_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Script):
        def submit(self, command: Any) -> Future[None]:
            self.commands.append(command)
            self.hangs = "a commit has not returned for 12 s"
            return Future()

    async def talk() -> None:
        async with asyncio.timeout(30):
            await hanging.talk(a_hello())

    monkeypatch.setattr(agents, "Outcomes", partial(Outcomes, look_s=0))
    hanging = Hanging([])
    asyncio.run(talk())

    assert [type(command) for command in hanging.commands] == [AgentConnected, AgentDisconnected]
    assert hanging.sent == []


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


def greeted(text: str) -> Any:
    """What the first message of an agent is answered, on the channel of agent "a"; or the Hello that it is."""
    return _greeted(text, "a")[1]


def test_a_hello_of_this_version_is_taken() -> None:
    assert greeted(encode(a_hello())) == a_hello()


@pytest.mark.parametrize("version", [1, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_an_agent_of_another_version_is_ordered_to_leave_whatever_else_its_hello_says(version: int) -> None:
    hello = {"kind": "hello", "version": version, "agent_id": "a", "pid": 17, "resources": "of another kind"}

    reason = f"the agent speaks version {version}, the service {PROTOCOL_VERSION}"
    assert greeted(json.dumps(hello)) == Leave(version=PROTOCOL_VERSION, reason=reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (encode(a_hello(agent_id="b")), "the hello of agent 'b' came on the channel of 'a'"),
        (encode(a_hello(agent_id="b", version=1)), "the hello of agent 'b' came on the channel of 'a'"),
        ('{"kind": "pong"}', "the first message must be a hello, not 'pong'"),
        (encode(a_hello()).replace('"host":"h"', '"host":3'), "hello.host: expected str, got int"),
    ],
)
def test_what_is_no_hello_of_this_agent_is_refused(text: str, reason: str) -> None:
    assert greeted(text) == Refused(reason=reason)


@pytest.mark.parametrize(
    ("resources", "about"),
    [
        (NodeResources(cpus=10**400, memory_bytes=1), "cpus"),
        (NodeResources(cpus=-1, memory_bytes=1), "cpus"),
        (NodeResources(cpus=1, memory_bytes=10**400), "memory_bytes"),
        (NodeResources(cpus=1, memory_bytes=-1), "memory_bytes"),
        (
            NodeResources(cpus=1, memory_bytes=1, devices=(NodeDevice(uuid="u", name="n", memory_bytes=1 << 63),)),
            "memory_bytes of a device",
        ),
    ],
)
def test_a_node_of_a_size_that_no_machine_has_is_refused(resources: NodeResources, about: str) -> None:
    """Whoever places trials reckons with it, for all experiments."""
    refused = greeted(encode(a_hello(resources=resources)))

    assert isinstance(refused, Refused)
    assert about in refused.reason
    assert len(refused.reason) < 200


def test_an_attempt_that_its_agent_cannot_follow_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = ObservedAttempt(
        key=KEY, nonce="n", lineage="", process=None, exit=None, spooled=0, unreadable="claim.json is of format 2"
    )
    Script([], welcome).run(a_hello(attempts=(unreadable,)))

    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (record.__dict__["attempt"], record.__dict__["error"]) == (KEY, "claim.json is of format 2")


def test_a_channel_that_is_cancelled_takes_back_nothing_of_what_it_told() -> None:
    class Slow(Script):
        def submit(self, command: Any) -> Future[None]:
            super().submit(command)
            answers.append(Future())
            return answers[-1]

    async def scene() -> None:
        talking = asyncio.ensure_future(slow.talk(a_hello()))
        while not answers:
            await asyncio.sleep(0)
        talking.cancel()
        await asyncio.wait([talking], timeout=30)

    answers: list[Future[None]] = []
    slow = Slow([])
    asyncio.run(scene())

    assert [type(command) for command in slow.commands] == [AgentConnected, AgentDisconnected]
    assert not any(answer.cancelled() for answer in answers)


@pytest.mark.parametrize(("error", "is_hung_up_on"), [(UnavailableError("busy"), True), (ConflictError("no"), False)])
def test_an_agent_whose_end_of_an_attempt_cannot_be_taken_now_is_hung_up_on_so_that_it_says_it_again(
    error: Exception, is_hung_up_on: bool
) -> None:
    """It says everything when it connects anew, and nothing twice on one connection."""

    class Busy(Script):
        def submit(self, command: Any) -> Future[None]:
            if not isinstance(command, AttemptExited):
                return super().submit(command)
            refused: Future[None] = Future()
            refused.set_exception(error)
            return refused

        async def receive(self) -> dict[str, Any]:
            if not self._frames and is_hung_up_on:
                await asyncio.Event().wait()
            return await super().receive()

    busy = Busy([encode(Exited(key=KEY, nonce="n", exit=RECORD, last_sequence=0))], welcome)

    async def talk() -> None:
        async with asyncio.timeout(30):
            await busy.talk(a_hello())

    asyncio.run(talk())

    assert [type(command) for command in busy.commands] == [AgentConnected, AgentDisconnected]


class Leaving(Script):
    """An agent of a node that may be gone after the end it tells: it stays until ``is_over``."""

    def __init__(self, logs: dict[str, str], *, faults: int = 0) -> None:
        super().__init__([encode(Exited(key=KEY, nonce="n", exit=RECORD, last_sequence=0, logs=logs))], welcome)
        self.done: list[Any] = []
        self._faults = faults
        self.node_files = SimpleNamespace(keep_logs=self.keep_logs, outgoing=lambda message: message)

    def run_until(self, count: int, *, is_joined: bool = True) -> list[Any]:
        """What was done, in its order, once that is so much."""
        clock = SimpleNamespace(now=lambda: 1.0)
        services: Any = SimpleNamespace(
            hub=self.hub,
            runner=self,
            queries=None,
            node_files=self.node_files,
            experiments=SimpleNamespace(clock=clock),
        )

        async def talk() -> None:
            connection = _Connection(self, services, a_hello(node=NodeFacts(is_joined=is_joined)))  # type: ignore[arg-type]
            talking = asyncio.ensure_future(connection.run())
            async with asyncio.timeout(30):
                while len(self.done) < count:
                    await asyncio.sleep(0)
            await talking

        asyncio.run(talk())
        return self.done

    def submit(self, command: Any) -> Future[None]:
        if isinstance(command, AttemptExited):
            self.done.append("exit")
        return super().submit(command)

    def keep_logs(self, agent_id: str, key: AttemptKey, nonce: str, logs: dict[str, bytes]) -> None:
        assert (agent_id, key, nonce) == ("a", KEY, "n")
        self.done.append(logs)
        if self._faults:
            self._faults -= 1
            raise OSError("no space left")


def test_what_an_attempt_wrote_is_on_the_disk_before_its_end_is_told() -> None:
    assert Leaving({"stdout": "YQ==", "stderr": ""}).run_until(2) == [{"stdout": b"a", "stderr": b""}, "exit"]


def test_the_end_of_an_attempt_that_wrote_nothing_waits_for_nothing() -> None:
    assert Leaving({"stdout": "", "stderr": ""}).run_until(2) == ["exit", {"stdout": b"", "stderr": b""}]


def test_logs_of_an_agent_that_shares_the_folder_are_not_kept_twice() -> None:
    assert Leaving({"stdout": "YQ=="}).run_until(1, is_joined=False) == ["exit"]


@pytest.mark.parametrize(("faults", "done"), [(1, 3), (9, 4)])
def test_where_logs_cannot_be_kept_it_is_tried_again_and_the_end_is_told_all_the_same(
    faults: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LOGS_AGAIN_S", (0.0, 0.0))

    assert Leaving({"stdout": "YQ=="}, faults=faults).run_until(done) == [{"stdout": b"a"}] * (done - 1) + ["exit"]


def test_an_exit_with_strange_logs_is_not_understood() -> None:
    leaving = Leaving({"stdout": "?"})
    leaving.run_until(0)

    assert [message["about"] for message in leaving.sent if message["kind"] == "not_understood"] == ["exited"]
