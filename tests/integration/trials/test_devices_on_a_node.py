"""What an agent tells of its node's devices, and what a trial sees of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, started
from tests.simulated_devices import Gpus
from tests.waiting import wait_until
from trials.wire.devices import DevicesChanged, NodeDevice
from trials.wire.launch import GivenDevice
from trials.wire.messages import Exited, Hello

MIB = 1 << 20
SEES = """
import os, trials
with trials.init() as trial:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
    print(seen, os.environ.get("TUNER_DEVICES"), os.environ.get("TUNER_GPU_MEMORY_FRACTION"))
    trial.report_final(loss=0.0)
"""
HOLDS = """
import json, os, pathlib, time, trials
with trials.init() as trial:
    uses = pathlib.Path(os.environ["DEVICES"] + ".uses")
    uses.mkdir(exist_ok=True)
    (uses / f"{os.getpid()}.json").write_text(json.dumps({"uuid": "g0", "used_mb": 3000}))
    trial.report(step=0, loss=0.0)
    while not pathlib.Path(os.environ["DEVICES"] + ".gate").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    return Gpus(tmp_path / "devices.json", [{"uuid": f"g{n}", "memory_mb": 80_000} for n in range(2)])


@pytest.fixture
def agent(start_agent: Callable[..., AgentProcess], gpus: Gpus) -> AgentProcess:
    return start_agent(TUNER_SIMULATED_DEVICES=str(gpus.file))


def device(uuid: str, **judged: Any) -> NodeDevice:
    return NodeDevice(uuid=uuid, name="simulated", memory_bytes=80_000 * MIB, **judged)


def given(*uuids: str, share: float = 1.0) -> tuple[GivenDevice, ...]:
    return tuple(GivenDevice(uuid=uuid, share=share) for uuid in uuids)


def told(service: FakeService, *devices: NodeDevice) -> bool:
    """Whether the newest of what was told of devices is this."""
    changes = service.of(DevicesChanged)
    return bool(changes) and changes[-1].devices == devices


def test_the_hello_says_which_devices_there_are_and_changes_are_told(
    service: FakeService, agent: AgentProcess, gpus: Gpus
) -> None:
    (hello,) = service.of(Hello)
    assert hello.resources.devices == (device("g0"), device("g1"))

    gpus.change(1, pids=[os.getpid()])
    wait_until(lambda: told(service, device("g0"), device("g1", occupied=True)))
    gpus.change(1, pids=[], fault="fell off the bus")
    wait_until(lambda: told(service, device("g0"), device("g1", lost="fell off the bus")))
    gpus.change(1, fault="")
    wait_until(lambda: told(service, device("g0"), device("g1")))


def test_a_node_without_devices_tells_of_none_and_hides_nothing(
    service: FakeService, start_agent: Callable[..., AgentProcess]
) -> None:
    start_agent(TUNER_SIMULATED_DEVICES="", CUDA_VISIBLE_DEVICES="7")
    service.launch(SEES)
    service.wait_for_exit()

    assert service.of(Hello)[0].resources.devices == ()
    assert (service.folder() / "stdout.log").read_text() == "7 None None\n"
    assert service.of(DevicesChanged) == []


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("devices", "sees"),
    [
        (given("g1"), "g1 g1 None\n"),
        (given("g0", "g1"), "g0,g1 g0,g1 None\n"),
        (given("g0", share=0.25), "g0 g0 0.25\n"),
        ((), " None None\n"),
    ],
)
def test_a_trial_sees_the_devices_it_was_given_and_no_others(
    service: FakeService, agent: AgentProcess, devices: tuple[GivenDevice, ...], sees: str, isolation: str
) -> None:
    service.launch(SEES, devices=devices, isolation=isolation)
    service.wait_for_exit()

    assert (service.folder() / "stdout.log").read_text() == sees


def test_a_trial_that_was_given_none_sees_what_its_experiment_shows_it(
    service: FakeService, agent: AgentProcess
) -> None:
    service.launch(SEES, environment={"CUDA_VISIBLE_DEVICES": "g1"})
    service.wait_for_exit()

    assert (service.folder() / "stdout.log").read_text() == "g1 None None\n"


@pytest.mark.parametrize(
    ("uuid", "why"), [("g9", "device g9 is not on this node"), ("g1", "device g1 was lost: fell off the bus")]
)
def test_an_attempt_on_a_device_that_is_not_there_ends_before_it_starts(
    service: FakeService, agent: AgentProcess, gpus: Gpus, uuid: str, why: str
) -> None:
    gpus.change(1, fault="fell off the bus")
    service.launch(SEES, devices=given(uuid))

    record = service.wait_for_exit().exit

    assert (record.cause, record.tail) == ("device_unavailable", why)
    assert told(service, device("g0"), device("g1", lost="fell off the bus")), "said before"


def test_a_trial_starts_once_its_device_is_free(service: FakeService, agent: AgentProcess, gpus: Gpus) -> None:
    gpus.change(0, pids=[os.getpid()])
    service.launch(SEES, devices=given("g0"))
    attempt = service.folder() / "attempt.json"
    wait_until(attempt.exists)
    gpus.change(0, pids=[])

    assert service.wait_for_exit().exit.cause == "exited"


def test_what_a_trial_uses_is_measured_and_what_it_leaves_behind_is_told_before_its_end(
    service: FakeService, agent: AgentProcess, gpus: Gpus
) -> None:
    service.launch(HOLDS, devices=given("g0"), environment={"DEVICES": str(gpus.file)})
    wait_until(lambda: any(3_000 * MIB in c.peaks.values() for c in service.of(DevicesChanged)))
    gpus.change(0, used_mb=900)
    Path(f"{gpus.file}.gate").touch()

    service.wait_for_exit()

    assert told(service, device("g0", occupied=True), device("g1"))
    gpus.change(0, used_mb=0)
    wait_until(lambda: told(service, device("g0"), device("g1")))


def test_an_agent_that_adopts_a_trial_knows_its_devices(
    service: FakeService, agent: AgentProcess, gpus: Gpus, start_agent: Callable[..., AgentProcess]
) -> None:
    service.launch(HOLDS, devices=given("g0"), environment={"DEVICES": str(gpus.file)})
    started(service)
    wait_until(lambda: list(Path(f"{gpus.file}.uses").glob("*.json")))
    agent.kill()
    start_agent(TUNER_SIMULATED_DEVICES=str(gpus.file))

    assert service.of(Hello)[-1].resources.devices == (device("g0"), device("g1")), "its own trial is no stranger"
    Path(f"{gpus.file}.gate").touch()
    service.wait_for(Exited, "n1")
