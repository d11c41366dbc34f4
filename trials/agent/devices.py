"""The GPUs of this node: what there is, who uses it, and whether one is free to be given on.

Sources only tell what they read. NVML is asked through nvidia-ml-py; a simulated source reads a file, so that every
rule here can be tried on a machine without any GPU.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SIMULATED_VARIABLE = "TUNER_SIMULATED_DEVICES"  # a JSON file: {"devices": [{"uuid": …, "memory_mb": …, …}]}
MIB = 1 << 20
LEFT_BEHIND_BYTES = 256 * MIB  # beyond what a device had in use when nobody ran on it; more counts as not given back
DEVICES_LIMIT = 1_024  # MIG instances included; what a file or driver says beyond is not looked at
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One device now. ``fault``: why it cannot be used, as its driver says; ``pids``: processes that compute on it."""

    uuid: str
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    pids: tuple[int, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """What the service is told of a device: see ``tuner_service.domain.resources.Device``."""

    uuid: str
    name: str
    memory_bytes: int
    occupied: bool = False
    lost: str = ""


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
    """What a file says, read anew each time; a file that is missing or damaged is no device at all."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[Reading, ...]:
        try:
            listed = json.loads(self._file.read_bytes())["devices"][:DEVICES_LIMIT]
            return tuple(_simulated(entry) for entry in listed)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the simulated devices cannot be read", extra={"file": str(self._file), "error": str(error)})
            return ()

    def close(self) -> None:
        pass


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
        self._known: dict[str, Reading] = {}  # as read when they were well: a lost device tells nothing any more

    def read(self) -> tuple[Reading, ...]:
        found: dict[str, Reading] = {}
        for index in range(min(self._nvml.nvmlDeviceGetCount(), DEVICES_LIMIT)):
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

    def _read_index(self, index: int) -> list[Reading]:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            instances = self._instances(handle)
            return [self._reading(one) for one in instances or [handle]]
        except self._nvml.NVMLError as error:
            # Which one it is can only be told by what is missing: ``read`` names it as listed no more.
            logger.warning("a GPU cannot be read", extra={"index": index, "error": str(error)})
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
        pids: set[int] = set()
        for ask in (self._nvml.nvmlDeviceGetComputeRunningProcesses, self._nvml.nvmlDeviceGetGraphicsRunningProcesses):
            with suppress(self._nvml.NVMLError):  # not told by every driver, nor for every instance
                pids |= {process.pid for process in ask(handle)}
        return Reading(
            uuid=_text(self._nvml.nvmlDeviceGetUUID(handle)),
            name=_text(self._nvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            pids=tuple(sorted(pids)),
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def open_source(environ: Mapping[str, str] = os.environ) -> DeviceSource:
    """Simulated devices where a file of them is named, else those that NVML knows, else none."""
    file = environ.get(SIMULATED_VARIABLE)
    if file:
        return SimulatedDevices(Path(file))
    try:
        import pynvml
    except ImportError:
        return NoDevices()
    try:
        return NvmlDevices(pynvml)
    except pynvml.NVMLError as error:
        logger.info("no GPU: NVML does not start", extra={"error": str(error)})
        return NoDevices()


class Devices:
    """The node's devices as its agent judges them.

    ``allow_active``: devices that other programs use are given to trials all the same.
    """

    def __init__(self, source: DeviceSource, *, allow_active: bool = False) -> None:
        self._source = source
        self._allow_active = allow_active
        self._idle_bytes: dict[str, int] = {}  # in use when nobody computed on it: the driver's own
        self._readings: tuple[Reading, ...] = ()

    def close(self) -> None:
        self._source.close()

    def states(self, *, own_pids: Collection[int], given: Collection[str]) -> tuple[DeviceState, ...]:
        """Every device now. ``own_pids`` are processes of our trials; ``given`` the devices that those hold.

        A device is occupied while a stranger computes on it, or while memory of ended trials has not come back.
        """
        self._readings = self._source.read()
        for reading in self._readings:
            if not reading.pids and reading.uuid not in given:
                known = self._idle_bytes.get(reading.uuid, reading.used_bytes)
                self._idle_bytes[reading.uuid] = min(known, reading.used_bytes)
        return tuple(self._state(reading, own_pids, reading.uuid in given) for reading in self._readings)

    def are_free(self, uuids: Iterable[str], *, own_pids: Collection[int]) -> bool:
        """Whether those devices may be given on, read anew: nobody computes on them, and their memory came back.

        ``own_pids``: of trials that share them. One that was lost is as free as it will ever be.
        """
        readings = {reading.uuid: reading for reading in self._source.read()}
        return all(uuid not in readings or self._is_free(readings[uuid], own_pids) for uuid in uuids)

    def peak_bytes(self, uuids: Collection[str], pids: Collection[int]) -> int:
        """Memory in use on those devices by the last reading, less what they have idle; 0 where others share them."""
        used = [
            max(0, reading.used_bytes - self._idle_bytes.get(reading.uuid, 0))
            for reading in self._readings
            if reading.uuid in uuids and set(reading.pids) <= set(pids)
        ]
        return max(used, default=0)

    def _state(self, reading: Reading, own_pids: Collection[int], is_given: bool) -> DeviceState:  # noqa: FBT001  # private, one caller
        stranger = bool(set(reading.pids) - set(own_pids)) and not self._allow_active
        return DeviceState(
            uuid=reading.uuid,
            name=reading.name,
            memory_bytes=reading.memory_bytes,
            occupied=stranger or (not is_given and not self._is_free(reading, own_pids)),
            lost=reading.fault,
        )

    def _is_free(self, reading: Reading, own_pids: Collection[int]) -> bool:
        if reading.fault:
            return True
        if set(reading.pids) - set(own_pids) and not self._allow_active:
            return False
        if reading.pids:
            return True  # our own trials share it: what they use is theirs
        left = reading.used_bytes - self._idle_bytes.get(reading.uuid, 0)
        return self._allow_active or left <= LEFT_BEHIND_BYTES
