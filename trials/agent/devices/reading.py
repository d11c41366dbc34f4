"""The GPUs of this node: what there is, who uses it, and whether one is free to be given on.

Sources only tell what they read. NVML is asked through nvidia-ml-py; a simulated source reads a file, so that every
rule here can be tried on a machine without any GPU.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from trials.agent.bounds import may_use
from trials.wire.devices import NodeDevice
from trials.wire.limits import DEVICES_LIMIT

SIMULATED_VARIABLE = "TUNER_SIMULATED_DEVICES"  # a JSON file: {"devices": [{"uuid": …, "memory_mb": …, …}]}
USES_SUFFIX = ".uses"  # of the folder beside it, in which processes say what they use
MIB = 1 << 20
DRIVER_PLACES = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")  # where none is, NVML need not be imported
LEFT_BEHIND_BYTES = 256 * MIB  # beyond what a device had in use when nobody ran on it; more counts as not given back
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One device now. ``fault``: why it cannot be used, as its driver says; ``pids``: processes that compute on it.

    ``used_by``: what each of them has in use, of those whose driver tells.
    """

    uuid: str
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    pids: tuple[int, ...] = ()
    used_by: Mapping[int, int] = field(default_factory=dict)
    fault: str = ""


class DeviceSource(Protocol):
    def read(self) -> tuple[Reading, ...]:
        """Every device, always in the same order; of a lost one only its UUID and fault."""
        ...

    def close(self) -> None: ...


class NoDevices:
    """A machine without any."""

    def read(self) -> tuple[Reading, ...]:
        return ()

    def close(self) -> None:
        pass


class SimulatedDevices:
    """What a file says, read anew each time; a file that is missing or damaged is no device at all.

    A process takes memory of a device by a file PID.json in the folder FILE.uses: {"uuid": …, "used_mb": …}. It has it
    until it ends, whoever removes the file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[Reading, ...]:
        try:
            listed = json.loads(self._file.read_bytes())["devices"][:DEVICES_LIMIT]
            uses = self._uses()
            return tuple(_with_uses(_simulated(entry), uses) for entry in listed)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("simulated_devices_unreadable", extra={"file": str(self._file), "error": str(error)})
            return ()

    def close(self) -> None:
        pass

    def _uses(self) -> list[tuple[int, str, int]]:
        """Process, device and bytes, of the processes that live."""
        found = []
        for path in self._file.with_name(self._file.name + USES_SUFFIX).glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):  # it is just being written
                use = json.loads(path.read_bytes())
                if Path(f"/proc/{path.stem}").exists():
                    found.append((int(path.stem), str(use["uuid"]), int(use["used_mb"]) * MIB))
        return found


def _with_uses(reading: Reading, uses: Iterable[tuple[int, str, int]]) -> Reading:
    used_by = {pid: size for pid, uuid, size in uses if uuid == reading.uuid}
    if not used_by:
        return reading
    pids = tuple(sorted({*reading.pids, *used_by}))
    return replace(reading, pids=pids, used_by=used_by, used_bytes=reading.used_bytes + sum(used_by.values()))


def _simulated(entry: Mapping[str, Any]) -> Reading:
    return Reading(
        uuid=str(entry["uuid"]),
        name=str(entry.get("name", "simulated")),
        memory_bytes=int(entry.get("memory_mb", 0)) * MIB,
        used_bytes=int(entry.get("used_mb", 0)) * MIB,
        pids=tuple(int(pid) for pid in entry.get("pids", ())),
        fault=str(entry.get("fault", "")),
    )


class NvmlDevices:
    """NVIDIA's GPUs. One that is cut into MIG instances is those instances. ``library`` is the module pynvml."""

    def __init__(self, library: Any) -> None:
        self._nvml = library
        self._nvml.nvmlInit()
        # A driver that is older than the library raises the second.
        self._not_told = (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError))
        self._known: dict[str, Reading] = {}  # as read when they were well: a lost device tells nothing any more

    def read(self) -> tuple[Reading, ...]:
        found: dict[str, Reading] = {}
        for index in range(min(self._count(), DEVICES_LIMIT)):
            for reading in self._read_index(index):
                found[reading.uuid] = reading
        for uuid, known in self._known.items():
            if uuid not in found:
                found[uuid] = Reading(
                    uuid=uuid, name=known.name, memory_bytes=known.memory_bytes, fault="the driver lists it no more"
                )
        self._known.update({uuid: reading for uuid, reading in found.items() if not reading.fault})
        return tuple(found[uuid] for uuid in sorted(found))

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _count(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            logger.warning("driver_lists_no_devices", extra={"error": str(error)})
            return 0

    def _read_index(self, index: int) -> list[Reading]:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            instances = self._instances(handle)
            return [self._reading(one) for one in instances or [handle]]
        except self._nvml.NVMLError as error:
            # Which one it is can only be told by what is missing: ``read`` names it as listed no more.
            logger.warning("device_unreadable", extra={"index": index, "error": str(error)})
            return []

    def _instances(self, handle: Any) -> list[Any]:
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError:
            return []  # a GPU that knows no MIG
        if current != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        found = []
        for place in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(self._nvml.NVMLError):  # a place without an instance
                found.append(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
        return found

    def _reading(self, handle: Any) -> Reading:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        used_by: dict[int, int] = {}
        for ask in (self._nvml.nvmlDeviceGetComputeRunningProcesses, self._nvml.nvmlDeviceGetGraphicsRunningProcesses):
            with suppress(*self._not_told):  # not told by every driver, nor for every instance
                for process in ask(handle):
                    used_by[process.pid] = getattr(process, "usedGpuMemory", None) or 0  # not told in every place
        return Reading(
            uuid=_text(self._nvml.nvmlDeviceGetUUID(handle)),
            name=_text(self._nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            pids=tuple(sorted(used_by)),
            used_by={pid: size for pid, size in used_by.items() if size},
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def may_have_devices(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is worth to ask for them: a quick look."""
    return bool(environ.get(SIMULATED_VARIABLE)) or any(Path(place).exists() for place in DRIVER_PLACES)


def open_source(environ: Mapping[str, str] = os.environ) -> DeviceSource:
    """Simulated devices where a file of them is named, else those that NVML knows, else none."""
    file = environ.get(SIMULATED_VARIABLE)
    if file:
        return SimulatedDevices(Path(file))
    if not may_have_devices(environ):
        return NoDevices()
    try:
        import pynvml
    except ImportError:
        return NoDevices()
    try:
        return NvmlDevices(pynvml)
    except pynvml.NVMLError as error:
        logger.info("nvml_does_not_start", extra={"error": str(error)})
        return NoDevices()


class Devices:
    """The node's devices as its agent judges them.

    ``allow_active``: devices that other programs use are given to trials all the same. ``is_there``: whether the
    number of a process means anything here; one that does not, on a device of ours, is taken for our own.
    """

    def __init__(
        self, source: DeviceSource, *, allow_active: bool = False, is_there: Callable[[int], bool] | None = None
    ) -> None:
        self._source = source
        self._allow_active = allow_active
        self._is_there = is_there
        self._idle_bytes: dict[str, int] = {}  # in use when nobody computed on it: the driver's own
        self._readings: tuple[Reading, ...] = ()

    def close(self) -> None:
        self._source.close()

    def states(self, *, own_pids: Collection[int], given: Collection[str]) -> tuple[NodeDevice, ...]:
        """Every device now. ``own_pids`` are processes of our trials; ``given`` the devices that those hold.

        A device is occupied while a stranger computes on it, or while memory of ended trials has not come back.
        """
        found = self._source.read()
        self._readings = tuple(one for place, one in enumerate(found) if may_use(one.uuid, place))
        for reading in self._readings:
            if not reading.pids and reading.uuid not in given:
                known = self._idle_bytes.get(reading.uuid, reading.used_bytes)
                self._idle_bytes[reading.uuid] = min(known, reading.used_bytes)
        return tuple(self._state(reading, own_pids, is_given=reading.uuid in given) for reading in self._readings)

    def used_bytes(self, uuids: Collection[str], pids: Collection[int]) -> int:
        """Most memory in use by those processes on one of those devices, by the last reading.

        Where the driver does not tell it by process: what is in use beyond the idle, and 0 where others share it.
        """
        return max((self._used(reading, set(pids)) for reading in self._readings if reading.uuid in uuids), default=0)

    def _used(self, reading: Reading, pids: set[int]) -> int:
        own = [size for pid, size in reading.used_by.items() if pid in pids]
        if own:
            return sum(own)
        if set(reading.pids) - pids:
            return 0
        return max(0, reading.used_bytes - self._idle_bytes.get(reading.uuid, 0))

    def _state(self, reading: Reading, own_pids: Collection[int], *, is_given: bool) -> NodeDevice:
        strangers = set(reading.pids) - set(own_pids)
        if is_given and self._is_there is not None:
            strangers = set(filter(self._is_there, strangers))
        if self._allow_active or reading.fault:
            occupied = False
        elif strangers:
            occupied = True
        else:
            occupied = not is_given and not reading.pids and self._has_leftovers(reading)
        return NodeDevice(
            uuid=reading.uuid,
            name=reading.name,
            memory_bytes=reading.memory_bytes,
            occupied=occupied,
            lost=reading.fault,
        )

    def _has_leftovers(self, reading: Reading) -> bool:
        """Whether memory of ended trials has not come back: nobody computes on the device."""
        return reading.used_bytes - self._idle_bytes.get(reading.uuid, 0) > LEFT_BEHIND_BYTES
