"""Parts of attempts of several nodes as an agent holds them: made ready, told to begin, given back."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService
from trials.wire.attempt import AttemptKey
from trials.wire.launch import GivenDevice, LaunchSpec, World
from trials.wire.messages import Hello, Launch, Prepare, Prepared, Started, Stop
from trials.wire.records import ExitCause

pytestmark = pytest.mark.usefixtures("agent")
SCRIPT = """
import os
names = ("RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TUNER_WORLD_KEY")
open("world", "w").write(" ".join(os.environ[name] for name in names))
"""


def prepare(service: FakeService, *, node: int = 0, limit_s: float = 60.0, **spec: object) -> Prepare:
    """Of one node of two; the other is nobody's business here."""
    fields = {
        "command": ("python", "train.py"), "parameters": {}, "seed": 7, "objective": "loss", "nodes": 2,
        "code_digest": service.code(train=SCRIPT), "world": World(node=node),
    }  # fmt: skip
    order = Prepare(
        key=AttemptKey(experiment_id="exp", number=1, attempt=1),
        nonce="n1",
        lineage=service.lineage,
        spec=LaunchSpec(**(fields | spec)),  # type: ignore[arg-type]  # of the fields above
        limit_s=limit_s,
    )
    service.send(order)
    return order


def go(service: FakeService, order: Prepare, ready: Prepared, *, port: int | None = None) -> None:
    assert order.spec.world is not None
    number = ready.port if port is None else port
    world = replace(order.spec.world, address="127.0.0.1", port=number, key=ready.world_key)
    spec = replace(order.spec, world=world)
    service.send(Launch(key=order.key, nonce=order.nonce, lineage=order.lineage, spec=spec))


def ready_of(service: FakeService) -> Prepared:
    found: Prepared = service.wait_for(Prepared)
    return found


def test_a_part_is_ready_runs_nothing_and_begins_when_it_is_told_with_the_port_that_was_kept(
    service: FakeService,
) -> None:
    order = prepare(service)
    ready = ready_of(service)

    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", ready.port))  # nobody else is given it
    assert len(ready.world_key) == 32
    assert not service.of(Started)
    go(service, order, ready)

    assert service.wait_for_exit().exit.cause is ExitCause.EXITED
    said = (service.folder() / "work" / "world").read_text()
    assert said == f"0 2 0 127.0.0.1 {ready.port} {ready.world_key}"


def test_another_node_than_the_first_keeps_no_port_and_makes_up_no_secret(service: FakeService) -> None:
    order = prepare(service, node=1)
    ready = ready_of(service)

    assert (ready.port, ready.world_key) == (0, "")
    go(service, order, replace(ready, port=4711, world_key="of the first"))
    service.wait_for_exit()
    assert (service.folder() / "work" / "world").read_text() == "1 2 1 127.0.0.1 4711 of the first"


def test_a_port_that_is_taken_between_prepare_and_go_gives_the_part_back(service: FakeService) -> None:
    order = prepare(service)
    ready = ready_of(service)

    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("", ready.port))
        thief.listen()
        go(service, order, ready)
        record = service.wait_for_exit().exit

    assert record.cause is ExitCause.NOT_READY
    assert f"port {ready.port}" in record.tail
    assert not service.of(Started)


def test_a_part_that_hears_nothing_gives_itself_back(service: FakeService) -> None:
    prepare(service, limit_s=0.2)
    ready_of(service)
    record = service.wait_for_exit().exit

    assert record.cause is ExitCause.NOT_READY
    assert "heard nothing of the service for 0.2 s" in record.tail
    assert not service.of(Started)


def test_a_part_that_is_told_to_stop_is_given_back_and_never_begins(service: FakeService) -> None:
    order = prepare(service)
    ready = ready_of(service)
    service.send(Stop(key=order.key, nonce="n1", grace_s=0.0, reason="nodes_not_ready"))

    assert service.wait_for_exit().exit.cause is ExitCause.STOPPED
    go(service, order, ready)
    service.send(Stop(key=order.key, nonce="n2", grace_s=0.0, reason="requested"))  # answered after the order before it
    service.wait_for_exit("n2")
    assert not service.of(Started)


def test_a_node_that_promised_a_device_it_has_not_cannot_prepare(service: FakeService) -> None:
    prepare(service, devices=(GivenDevice(uuid="GPU-of-a-lie"),))
    record = service.wait_for_exit().exit

    assert record.cause is ExitCause.DEVICE_UNAVAILABLE
    assert "GPU-of-a-lie" in record.tail
    assert not service.of(Prepared)


def test_an_order_to_begin_that_is_said_twice_begins_it_once(service: FakeService) -> None:
    order = prepare(service)
    ready = ready_of(service)
    go(service, order, ready)
    go(service, order, ready)

    service.wait_for_exit()
    pids = {message.process.pid for message in service.of(Started)}
    assert len(pids) == 1


def test_a_part_that_is_ready_survives_its_agent(service: FakeService, agent: AgentProcess) -> None:
    order = prepare(service)
    ready = ready_of(service)
    agent.kill()
    following = AgentProcess(service.home)
    try:
        service.wait_for(Hello, count=2)
        go(service, order, ready)
        service.wait_for_exit()
    finally:
        following.terminate()

    assert (service.folder() / "work" / "world").read_text().split()[4] == str(ready.port)
