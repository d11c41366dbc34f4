"""The GPUs of a node: scripted ones, and those of a scripted driver."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trials.agent.devices.reading import MIB, Devices, NoDevices, NvmlDevices, Reading, SimulatedDevices, open_source
from trials.agent.forks.serving import has_open

OURS, STRANGER = 100, 666


class Scripted:
    """A source that says what a test last put in."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = readings

    def read(self) -> tuple[Reading, ...]:
        return self.readings

    def close(self) -> None:
        pass


def a_device(uuid: str = "g0", *, used_mb: int = 5, **changed: Any) -> Reading:
    return Reading(uuid=uuid, name="A100", memory_bytes=80_000 * MIB, used_bytes=used_mb * MIB, **changed)


def judged(source: Scripted, *, given: tuple[str, ...] = (), allow_active: bool = False) -> dict[str, str]:
    states = Devices(source, allow_active=allow_active).states(own_pids={OURS}, given=given)
    return {s.uuid: "lost" if s.lost else "occupied" if s.occupied else "free" for s in states}


# ── judging ─────────────────────────────────────────────────────────────────────────────────────
def test_a_device_that_a_stranger_uses_is_left_alone_unless_that_is_allowed() -> None:
    source = Scripted(a_device("g0", pids=(STRANGER,)), a_device("g1"))

    assert judged(source) == {"g0": "occupied", "g1": "free"}
    assert judged(source, allow_active=True) == {"g0": "free", "g1": "free"}


def test_our_own_trials_do_not_occupy_the_device_they_were_given() -> None:
    assert judged(Scripted(a_device(pids=(OURS,), used_mb=9_000)), given=("g0",)) == {"g0": "free"}


def test_a_stranger_who_joins_our_trial_is_seen() -> None:
    assert judged(Scripted(a_device(pids=(OURS, STRANGER))), given=("g0",)) == {"g0": "occupied"}


def test_a_lost_device_says_why() -> None:
    states = Devices(Scripted(a_device(fault="fell off the bus"))).states(own_pids=(), given=())

    assert states[0].lost == "fell off the bus"


def test_memory_that_a_trial_left_behind_keeps_its_device_occupied() -> None:
    source = Scripted(a_device(used_mb=400))
    devices = Devices(source)
    devices.states(own_pids=(), given=())
    source.readings = (a_device(used_mb=9_000, pids=(OURS,)),)
    assert not devices.states(own_pids={OURS}, given={"g0"})[0].occupied

    source.readings = (a_device(used_mb=8_000),)
    assert devices.states(own_pids=(), given=())[0].occupied

    source.readings = (a_device(used_mb=500),)
    assert not devices.states(own_pids=(), given=())[0].occupied


def test_a_device_is_not_given_on_while_a_process_of_the_ended_trial_is_on_it() -> None:
    devices = Devices(Scripted(a_device(pids=(OURS,))))

    assert devices.states(own_pids=(), given=())[0].occupied
    assert not devices.states(own_pids={OURS}, given={"g0"})[0].occupied, "of a trial that shares it"


def test_a_lost_device_is_not_called_occupied() -> None:
    (state,) = Devices(Scripted(a_device(fault="gone", used_mb=9_000))).states(own_pids=(), given=())

    assert (state.lost, state.occupied) == ("gone", False)


def test_a_number_that_means_no_process_here_is_our_own_on_a_device_of_ours() -> None:
    """In a container the driver tells the host's numbers."""
    devices = Devices(Scripted(a_device(pids=(4_711,))), is_there=lambda pid: pid != 4_711)

    assert not devices.states(own_pids={OURS}, given={"g0"})[0].occupied
    assert devices.states(own_pids={OURS}, given=())[0].occupied


def test_what_a_trial_uses_is_what_its_processes_use_where_the_driver_tells() -> None:
    source = Scripted(
        a_device(used_mb=9_000, pids=(OURS, OURS + 1, 7), used_by={OURS: 3 * MIB, OURS + 1: MIB, 7: 5 * MIB}),
        a_device("g1", used_by={OURS: MIB}, pids=(OURS,)),
        a_device("g2", used_by={OURS: 99 * MIB}, pids=(OURS,)),
    )
    devices = Devices(source)
    devices.states(own_pids={OURS}, given={"g0", "g1"})

    assert devices.used_bytes({"g0", "g1"}, {OURS, OURS + 1}) == 4 * MIB


def test_what_a_trial_uses_is_else_what_came_beside_the_idle_memory() -> None:
    source = Scripted(a_device(used_mb=400), a_device("g1"))
    devices = Devices(source)
    devices.states(own_pids=(), given=())
    source.readings = (a_device(used_mb=2_400, pids=(OURS,)), a_device("g1"))
    devices.states(own_pids={OURS}, given={"g0"})

    assert devices.used_bytes({"g0"}, {OURS}) == 2_000 * MIB
    assert devices.used_bytes({"g0"}, ()) == 0, "it is somebody else's"
    assert devices.used_bytes((), {OURS}) == 0


# ── sources ─────────────────────────────────────────────────────────────────────────────────────
def test_simulated_devices_are_what_the_file_says_now(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    source = open_source({"TUNER_SIMULATED_DEVICES": str(file)})
    assert source.read() == ()

    file.write_text(
        json.dumps(
            {"devices": [{"uuid": "a", "memory_mb": 10, "used_mb": 1, "pids": [3]}, {"uuid": "b", "fault": "x"}]}
        )
    )

    assert isinstance(source, SimulatedDevices)
    assert source.read() == (
        Reading(uuid="a", name="simulated", memory_bytes=10 * MIB, used_bytes=MIB, pids=(3,)),
        Reading(uuid="b", name="simulated", fault="x"),
    )
    file.write_text("{torn")
    assert source.read() == ()


def test_a_process_takes_memory_of_a_simulated_device_until_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"devices": [{"uuid": "a", "used_mb": 1}, {"uuid": "b"}]}))
    uses = tmp_path / "devices.json.uses"
    uses.mkdir()
    (uses / f"{os.getpid()}.json").write_text(json.dumps({"uuid": "a", "used_mb": 7}))
    (uses / "999999999.json").write_text(json.dumps({"uuid": "b", "used_mb": 7}))
    (uses / "torn.json").write_text("{")

    first, second = SimulatedDevices(file).read()

    assert (first.used_bytes, first.pids, first.used_by) == (8 * MIB, (os.getpid(),), {os.getpid(): 7 * MIB})
    assert second == Reading(uuid="b", name="simulated")


def test_a_machine_without_devices_has_none() -> None:
    assert NoDevices().read() == ()


class Driver:
    """As the module pynvml: two GPUs, the second one cut into MIG instances."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.ended = False

    def nvmlInit(self) -> None:  # noqa: N802  # as the driver names it
        self.ended = False

    def nvmlShutdown(self) -> None:  # noqa: N802  # likewise
        self.ended = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  # likewise
        self._well("driver")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802  # likewise
        return self._well(f"GPU-{index}")

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802  # likewise
        if handle == "GPU-0":
            raise self.NVMLError("not supported")
        return 1, 1

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802  # likewise
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, place: int) -> str:  # noqa: N802  # likewise
        if place == 2:
            raise self.NVMLError("not found")
        return f"MIG-{place}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802  # likewise
        return SimpleNamespace(total=80 * MIB, used=2 * MIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802  # likewise
        return [SimpleNamespace(pid=7), SimpleNamespace(pid=7, usedGpuMemory=3 * MIB)] if handle == "GPU-0" else []

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802  # likewise
        raise self.NVMLError("not supported")

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802  # likewise
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:  # noqa: N802  # likewise
        return b"H200"

    def _well(self, handle: str) -> str:
        if handle in self.gone:
            raise self.NVMLError("GPU is lost")
        return handle


def test_the_driver_is_asked_for_gpus_and_for_the_instances_of_those_that_are_cut() -> None:
    driver = Driver()
    source = NvmlDevices(driver)

    readings = source.read()
    source.close()

    assert [r.uuid for r in readings] == ["GPU-0", "MIG-0", "MIG-1"]
    assert readings[0] == Reading(
        uuid="GPU-0", name="H200", memory_bytes=80 * MIB, used_bytes=2 * MIB, pids=(7,), used_by={7: 3 * MIB}
    )
    assert driver.ended


def test_a_driver_that_answers_no_more_has_lost_what_it_had() -> None:
    driver = Driver()
    source = NvmlDevices(driver)
    source.read()

    driver.gone.add("driver")

    assert {reading.fault for reading in source.read()} == {"the driver lists it no more"}


def test_a_gpu_that_the_driver_lost_is_known_by_its_absence() -> None:
    driver = Driver()
    source = NvmlDevices(driver)
    source.read()

    driver.gone.add("GPU-0")

    assert source.read()[0] == Reading(
        uuid="GPU-0", name="H200", memory_bytes=80 * MIB, fault="the driver lists it no more"
    )


# ── before a fork ───────────────────────────────────────────────────────────────────────────────
def test_a_process_that_has_opened_a_device_is_known_by_its_files(tmp_path: Path) -> None:
    prefix = str(tmp_path / "nvidia")
    assert not has_open(prefix)

    with (tmp_path / "nvidia0").open("w"):
        assert has_open(prefix)
