"""The devices of a node over time: what is told when, and what an attempt waits for."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from trials.agent.devices import node as node_devices
from trials.agent.devices.node import DeviceUnavailableError, NodeDevices
from trials.agent.devices.reading import MIB, Devices, Reading
from trials.wire.devices import NodeDevice
from trials.wire.records import ProcessRecord

OURS = ProcessRecord(boot_id="b", pid=os.getpid(), start_time=1)


@dataclass
class Attempt:
    nonce: str
    devices: tuple[str, ...]
    process: ProcessRecord | None = OURS


class Scripted:
    """``turns``: what the next readings are; the last one stays."""

    def __init__(self, *turns: tuple[Reading, ...]) -> None:
        self.turns = list(turns)
        self.closed = False

    def read(self) -> tuple[Reading, ...]:
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]

    def close(self) -> None:
        self.closed = True


class Node:
    """Node devices, the attempts that hold them, and what was told."""

    def __init__(self, *turns: tuple[Reading, ...], timeout_s: float = 0.0) -> None:
        self.source = Scripted(*turns)
        self.holders: list[Attempt] = []
        self.told: list[tuple[dict[str, str], dict[str, int]]] = []
        self.devices = NodeDevices(lambda: self.holders, free_timeout_s=timeout_s, settle_s=timeout_s)
        self.devices.on_change = self.tell

    async def tell(self) -> None:
        self.told.append((judged(self.devices.states), dict(self.devices.peaks)))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            await self.devices.open(lambda: self.source)
            self.devices.take_as_told()
            await work

        asyncio.run(whole())


def judged(states: tuple[NodeDevice, ...]) -> dict[str, str]:
    return {s.uuid: "lost" if s.lost else "occupied" if s.occupied else "free" for s in states}


def a_device(uuid: str = "g0", *, used_mb: int = 0, **changed: Any) -> Reading:
    return Reading(uuid=uuid, name="A100", memory_bytes=80_000 * MIB, used_bytes=used_mb * MIB, **changed)


WELL, LEFT = (a_device(),), (a_device(used_mb=900),)
STRANGER = (a_device(pids=(1,)),)


def test_only_changes_are_told() -> None:
    node = Node(WELL, WELL, STRANGER, STRANGER, WELL)

    async def work() -> None:
        for _ in range(4):
            await node.devices.refresh()

    node.run(work())

    assert [states for states, _ in node.told] == [{"g0": "occupied"}, {"g0": "free"}]


def test_an_attempt_waits_for_its_device_to_be_free() -> None:
    node = Node(WELL, STRANGER, STRANGER, WELL, timeout_s=60.0)

    node.run(node.devices.wait_until_free(["g0"]))

    assert node.told == [], "it has passed before it mattered to anybody"


@pytest.mark.parametrize(
    ("uuid", "turn", "why"),
    [
        ("g0", STRANGER, "device g0 is in use by another program, or its memory did not come back"),
        ("g0", (a_device(fault="fell off the bus"),), "device g0 was lost: fell off the bus"),
        ("g9", WELL, "device g9 is not on this node"),
    ],
)
def test_what_cannot_be_had_is_said_after_the_service_was_told(uuid: str, turn: tuple[Reading, ...], why: str) -> None:
    node = Node(WELL, turn)

    with pytest.raises(DeviceUnavailableError, match=why):
        node.run(node.devices.wait_until_free([uuid]))

    assert len(node.told) == (turn is not WELL)


def test_without_devices_nothing_is_asked() -> None:
    devices = NodeDevices(list)
    asyncio.run(devices.wait_until_free([]))
    asyncio.run(devices.refresh())
    asyncio.run(devices.watch())
    devices.close()

    assert devices.states == ()


def test_memory_that_comes_back_in_time_after_a_trial_is_not_worth_telling() -> None:
    node = Node(WELL, LEFT, LEFT, WELL, timeout_s=60.0)

    node.run(node.devices.settle(Attempt("n1", ("g0",))))

    assert node.told == []


def test_memory_that_does_not_come_back_is_told_before_the_trials_end_is() -> None:
    node = Node(WELL, LEFT)

    node.run(node.devices.settle(Attempt("n1", ("g0",))))

    assert node.told == [({"g0": "occupied"}, {})]


def test_what_a_trial_was_seen_to_use_is_told_as_it_grows_and_forgotten_with_it() -> None:
    use = [(a_device(pids=(OURS.pid,), used_by={OURS.pid: size * MIB}),) for size in (1_000, 1_010, 2_000)]
    node = Node(WELL, *use, WELL)
    held = Attempt("n1", ("g0",))

    async def work() -> None:
        node.holders = [held]
        for _ in range(3):
            await node.devices.refresh()
        node.holders = []
        await node.devices.settle(held)

    node.run(work())

    assert [peaks["n1"] // MIB for _, peaks in node.told] == [1_000, 2_000]
    assert node.devices.peaks == {}


def test_an_attempt_that_has_no_process_yet_uses_nothing() -> None:
    node = Node(WELL)
    node.holders = [Attempt("n1", ("g0",), process=None)]

    node.run(node.devices.refresh())
    node.devices.close()

    assert node.told == []
    assert node.source.closed


class Hanging(Scripted):
    """Answers only while ``gate`` is open."""

    def __init__(self, *turns: tuple[Reading, ...]) -> None:
        super().__init__(*turns)
        self.gate = threading.Event()
        self.gate.set()

    def read(self) -> tuple[Reading, ...]:
        assert self.gate.wait(60)
        return super().read()


def test_a_driver_that_hangs_keeps_no_end_and_no_launch_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is given to nobody until the driver answers, and who runs on it is left alone."""
    node, source = Node(), Hanging(WELL)
    node.source = source

    async def work() -> None:
        source.gate.clear()
        monkeypatch.setattr(node_devices, "READ_LIMIT_S", 0.0)
        try:
            async with asyncio.timeout(30):
                await node.devices.settle(Attempt("n", ("g0",)))
                with pytest.raises(DeviceUnavailableError, match="the driver of device g0 does not answer"):
                    await node.devices.wait_until_free(["g0"])
                node.devices.close()
                assert not source.closed, "that would hang, too"
        finally:
            source.gate.set()
        monkeypatch.setattr(node_devices, "READ_LIMIT_S", 30.0)
        async with asyncio.timeout(30):
            while judged(node.devices.states) != {"g0": "free"}:
                await node.devices.refresh()

    node.run(work())

    assert [states for states, _ in node.told] == [{"g0": "occupied"}, {"g0": "free"}]


def test_what_a_driver_answers_late_is_looked_at_once_more_before_a_device_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever took the device meanwhile is not in an answer to what was asked before."""
    node, source = Node(), Hanging(WELL, WELL, STRANGER)
    node.source = source
    answered = threading.Event()
    read = Devices.states

    def states(self: Devices, **asked: Any) -> tuple[NodeDevice, ...]:
        try:
            return read(self, **asked)
        finally:
            answered.set()

    async def work() -> None:
        monkeypatch.setattr(Devices, "states", states)
        source.gate.clear()
        monkeypatch.setattr(node_devices, "READ_LIMIT_S", 0.0)
        await node.devices.refresh()
        source.gate.set()
        async with asyncio.timeout(30):
            while not answered.is_set() or (reading := node.devices._under_way) is None or not reading.done():
                await asyncio.sleep(0)
            monkeypatch.setattr(node_devices, "READ_LIMIT_S", 30.0)
            with pytest.raises(DeviceUnavailableError, match="in use by another program"):
                await node.devices.wait_until_free(["g0"])

    node.run(work())


def test_an_agent_whose_driver_hangs_from_the_beginning_begins_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that trials that need none run, and those that ran before are adopted."""
    monkeypatch.setattr(node_devices, "OPEN_LIMIT_S", 0.0)
    gate, node = threading.Event(), Node(WELL)

    def opened() -> Scripted:
        assert gate.wait(60)
        return node.source

    async def work() -> None:
        try:
            async with asyncio.timeout(30):
                await node.devices.open(opened)
                await node.devices.wait_until_free([])
        finally:
            gate.set()

    asyncio.run(work())
    assert node.devices.states == ()
