"""Each effect becomes one message to the agent it is for, or one call of the workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_spec
from tests.unit.dispatcher.harness import AGENT
from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Busy,
    DeleteCheckpoint,
    Forget,
    FurtherParameters,
    Hello,
    Launch,
    NodeResources,
    Ping,
    RemoveExperiment,
    Stop,
    ToAgent,
    Welcome,
)
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.service.cluster import AGENTS_REMEMBERED, OWED_LIMIT, AgentHub, Channel
from tuner_service.service.perform import Performer

KEY = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)
LAUNCH = LaunchSpec(command=("true",), parameters={}, seed=1, objective="loss")


class RecordingWorkers:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def start(self, order: e.StartWorker) -> None:
        self.calls.append(("start", order))

    def deliver(self, order: e.Deliver) -> None:
        self.calls.append(("deliver", order))

    def ping(self, order: e.PingWorker) -> None:
        self.calls.append(("ping", order))

    def stop(self, experiment_id: str) -> None:
        self.calls.append(("stop", experiment_id))

    def close(self) -> None:
        self.calls.append(("close", None))


class Wire:
    """One agent's channel, and what came over it."""

    def __init__(self, agent_id: str) -> None:
        self.sent: list[ToAgent] = []
        self.closed = 0
        resources = NodeResources(cpus=4, memory_bytes=1)
        hello = Hello(version=PROTOCOL_VERSION, agent_id=agent_id, boot_id="b", host="h", pid=1, resources=resources)
        self.channel = Channel(hello=hello, send=self.sent.append, close=self._close)

    def _close(self) -> None:
        self.closed += 1


class Service:
    def __init__(self) -> None:
        self.hub, self.workers = AgentHub(), RecordingWorkers()
        self.performer = Performer(hub=self.hub, workers=self.workers, lineage="memory")
        self.wire, self.other = Wire(AGENT), Wire("agent-2")
        self.hub.add(self.wire.channel)
        self.hub.add(self.other.channel)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.mark.parametrize(
    "message",
    [
        Launch(key=KEY, nonce="n", lineage="memory", spec=LAUNCH),
        Stop(key=KEY, nonce="n", grace_s=3.0, reason="r"),
        FurtherParameters(key=KEY, nonce="n", index=2, parameters={"lr": 0.5}),
        Acknowledge(nonce="n", sequence=4),
        Busy(nonce="n", retry_after_s=0.2),
        Forget(nonce="n"),
        DeleteCheckpoint(nonce="n", name="s"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_agent_is_told_goes_to_that_agent_as_it_is(service: Service, message: e.ToOneAgent) -> None:
    service.performer.perform(e.Tell(agent_id=AGENT, message=message))

    assert service.wire.sent == [message]
    assert service.other.sent == []


def test_a_welcome_says_what_the_service_adds_to_it(service: Service) -> None:
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={"n": 3}))

    welcome = Welcome(version=PROTOCOL_VERSION, lineage="memory", acknowledged={"n": 3}, asset_cache_bytes=0)
    assert service.wire.sent == [welcome]
    assert service.other.sent == []


def test_folders_of_a_deleted_experiment_are_removed_everywhere(service: Service) -> None:
    remove = RemoveExperiment(experiment_id=EXPERIMENT_ID)
    service.performer.perform(e.TellAll(message=remove))

    assert service.wire.sent == service.other.sent == [remove]


def test_a_deletion_sent_into_a_connection_that_is_dead_is_told_once_the_agent_is_back(service: Service) -> None:
    """Whether it has arrived is known by the answer to what was sent behind it."""
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    first, second = RemoveExperiment(experiment_id="e1"), RemoveExperiment(experiment_id="e2")
    for remove in (first, second):
        service.performer.perform(e.TellAll(message=remove))
    assert service.wire.sent[1:] == [first, Ping(), second, Ping()]
    service.hub.answered(service.wire.channel)

    back = Wire(AGENT)
    service.hub.add(back.channel)
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert back.sent[1:] == [second, Ping()], "the first one has arrived"
    service.hub.answered(back.channel)
    service.hub.answered(back.channel)  # nobody has asked
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert [type(message) for message in back.sent[3:]] == [Welcome]


def test_the_deletion_of_a_checkpoint_sent_into_a_dead_connection_is_told_once_the_agent_is_back(
    service: Service,
) -> None:
    """Its row is gone: nobody would ever think of the file again."""
    for agent_id in (AGENT, "agent-2"):
        service.performer.perform(e.WelcomeAgent(agent_id=agent_id, acknowledged={}))
    first, second = DeleteCheckpoint(nonce="n", name="s1"), DeleteCheckpoint(nonce="n", name="s2", location="/s/s2")
    for delete in (first, second):
        service.performer.perform(e.Tell(agent_id=AGENT, message=delete))
    assert service.wire.sent[1:] == [first, Ping(), second, Ping()]
    service.hub.answered(service.wire.channel)
    service.hub.remove(service.wire.channel)

    back = Wire(AGENT)
    service.hub.add(back.channel)
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert back.sent[1:] == [second, Ping()], "the first one has arrived"
    assert [type(message) for message in service.other.sent] == [Welcome], "it has nothing to do with it"
    service.performer.perform(e.Tell(agent_id="never seen", message=first))


def test_an_answer_over_a_connection_that_was_replaced_says_nothing_of_what_came_later(service: Service) -> None:
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    service.performer.perform(e.TellAll(message=RemoveExperiment(experiment_id="e1")))
    back = Wire(AGENT)
    service.hub.add(back.channel)
    later = RemoveExperiment(experiment_id="e2")
    service.performer.perform(e.TellAll(message=later))
    service.hub.answered(service.wire.channel)
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert back.sent[2:] == [later, Ping()]


def test_an_agent_that_was_away_is_told_of_a_deletion_once_it_is_back(service: Service) -> None:
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    service.hub.remove(service.wire.channel)
    remove = RemoveExperiment(experiment_id=EXPERIMENT_ID)
    service.performer.perform(e.TellAll(message=remove))
    back, never_seen = Wire(AGENT), Wire("another-agent")
    for wire in (back, never_seen):
        service.hub.add(wire.channel)
        assert wire.sent == [], "before it is welcomed it takes nothing"
        service.performer.perform(e.WelcomeAgent(agent_id=wire.channel.hello.agent_id, acknowledged={}))

    assert [type(message) for message in back.sent] == [Welcome, RemoveExperiment, Ping]
    assert [type(message) for message in never_seen.sent] == [Welcome], "it cannot have anything of it"
    service.hub.answered(back.channel)
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert [type(message) for message in back.sent] == [Welcome, RemoveExperiment, Ping, Welcome]


def test_an_agent_that_is_about_to_be_welcomed_misses_no_deletion(service: Service) -> None:
    remove = RemoveExperiment(experiment_id=EXPERIMENT_ID)
    service.performer.perform(e.TellAll(message=remove))
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))

    assert [type(message) for message in service.wire.sent] == [RemoveExperiment, Welcome, RemoveExperiment, Ping]


def test_what_agents_that_are_away_are_owed_is_bounded(service: Service) -> None:
    service.hub.remove(service.wire.channel)
    for number in range(OWED_LIMIT + 1):
        service.performer.perform(e.TellAll(message=RemoveExperiment(experiment_id=f"e{number}")))
    back = Wire(AGENT)
    service.hub.add(back.channel)
    service.performer.perform(e.WelcomeAgent(agent_id=AGENT, acknowledged={}))
    assert len(back.sent) == 1 + OWED_LIMIT + 1
    assert back.sent[-2] == RemoveExperiment(experiment_id=f"e{OWED_LIMIT}")

    for number in range(AGENTS_REMEMBERED):
        wire = Wire(f"agent-{number}")
        service.hub.add(wire.channel)
        service.hub.remove(wire.channel)
    assert len(service.hub._owed) == AGENTS_REMEMBERED


def test_orders_about_workers_are_calls_of_them(service: Service) -> None:
    start = e.StartWorker(experiment_id=EXPERIMENT_ID, generation=1, spec=a_spec(), tuner_cursor=0, assessor_cursor=0)
    item = SuggestionRequested(line=2, number=1)
    deliver = e.Deliver(experiment_id=EXPERIMENT_ID, generation=1, queue=Queue.TUNER, item=item)
    ping = e.PingWorker(experiment_id=EXPERIMENT_ID, generation=1)
    for effect in (start, deliver, ping, e.StopWorker(experiment_id=EXPERIMENT_ID)):
        service.performer.perform(effect)

    assert service.workers.calls == [
        ("start", start), ("deliver", deliver), ("ping", ping), ("stop", EXPERIMENT_ID)
    ]  # fmt: skip


def test_a_long_queue_is_one_line_of_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.performer.perform(e.WarnQueueLength(experiment_id=EXPERIMENT_ID, queue=Queue.TUNER, depth=21))

    (record,) = caplog.records
    said = {name: getattr(record, name) for name in ("experiment", "queue", "depth")}
    assert said == {"experiment": EXPERIMENT_ID, "queue": "tuner", "depth": 21}


def test_what_an_absent_agent_should_be_told_is_dropped(service: Service) -> None:
    service.performer.perform(e.Tell(agent_id="nobody", message=Forget(nonce="n")))

    assert service.wire.sent == service.other.sent == []


# ── the hub ─────────────────────────────────────────────────────────────────────────────────────
def test_a_second_channel_of_an_agent_replaces_the_first(service: Service) -> None:
    newer = Wire(AGENT)
    service.hub.add(newer.channel)
    service.hub.send(AGENT, Forget(nonce="n"))

    assert service.wire.closed == 1
    assert service.wire.sent == []
    assert newer.sent == [Forget(nonce="n")]


def test_the_end_of_a_replaced_channel_says_nothing_about_its_agent(service: Service) -> None:
    newer = Wire(AGENT)
    service.hub.add(newer.channel)

    assert service.hub.remove(service.wire.channel) is False
    assert {hello.agent_id for hello in service.hub.agents()} == {AGENT, "agent-2"}
    assert service.hub.remove(newer.channel) is True
    assert {hello.agent_id for hello in service.hub.agents()} == {"agent-2"}


def test_closing_all_channels_makes_every_agent_say_hello_again(service: Service) -> None:
    service.hub.close_all()

    assert (service.wire.closed, service.other.closed) == (1, 1)
    assert list(service.hub.agents()) == []
