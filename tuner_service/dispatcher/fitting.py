"""Whether a trial fits into what one node has left, and what it would hold there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tuner_service.dispatcher.ledger import Free
from tuner_service.domain.resources import (
    AUTO_MARGIN,
    MACHINE_LABEL,
    ROUNDING,
    WHOLE,
    Demand,
    Device,
    GpuRequest,
    Holding,
    Node,
)

Found = TypeVar("Found")


def fit_node(free: Free, demand: Demand, without: frozenset[str] = frozenset()) -> Holding | None:
    """What the trial would hold there; ``without`` these devices."""
    if demand.cpus > free.cpus + ROUNDING or demand.memory_bytes > free.memory_bytes:
        return None
    if demand.request is GpuRequest.COUNT and demand.gpus >= WHOLE and free.whole < round(demand.gpus):
        return None  # the most usual answer where all is in use
    if not free.node.may_take(demand):
        return None
    shares = _shares(free, demand, without)
    if shares is None:
        return None
    return Holding(
        agent_id=free.node.agent_id,
        cpus=demand.cpus,
        memory_bytes=demand.memory_bytes,
        shares=shares,
        gpu_memory_bytes=demand.gpu_memory_bytes if shares else 0,
    )


def gpus_on(free: Free, demand: Demand, without: frozenset[str] = frozenset()) -> float | None:
    """How much of the devices there the trial would hold; None where it does not fit. What most trials ask is quick."""
    is_plain = demand.request is GpuRequest.COUNT and not demand.gpu_memory_bytes
    if not is_plain or 0 < demand.gpus < WHOLE or (without and demand.gpus):
        holding = fit_node(free, demand, without)
        return None if holding is None else holding.gpus
    if demand.cpus > free.cpus + ROUNDING or demand.memory_bytes > free.memory_bytes:
        return None
    count = round(demand.gpus)
    return float(count) if free.whole >= count and free.node.may_take(demand) else None


def _shares(free: Free, demand: Demand, without: frozenset[str]) -> dict[str, float] | None:
    if not demand.wants_gpu:
        return {}
    devices = [d for d in free.node.devices if d.uuid not in without and _has_memory(free, d, demand)]
    if demand.request is GpuRequest.ALL:
        untouched = _untouched(free, devices)
        complete = bool(untouched) and len(untouched) == sum(not device.lost for device in free.node.devices)
        return dict.fromkeys(untouched, WHOLE) if complete else None
    if demand.request is GpuRequest.AUTO:
        peak = demand.peak_gpu_bytes
        return _take_whole(free, devices, 1) if peak is None else _share_by_memory(free, devices, peak)
    if demand.gpus < WHOLE:
        return _take_fraction(free, {device.uuid: demand.gpus for device in devices})
    return _take_whole(free, devices, round(demand.gpus))


def _has_memory(free: Free, device: Device, demand: Demand) -> bool:
    return device.uuid in free.shares and free.gpu_memory[device.uuid] >= demand.gpu_memory_bytes


def _untouched(free: Free, devices: Sequence[Device]) -> list[str]:
    return [device.uuid for device in devices if free.shares[device.uuid] >= WHOLE - ROUNDING]


def _take_whole(free: Free, devices: Sequence[Device], count: int) -> dict[str, float] | None:
    """The smallest devices that do."""
    sizes = {device.uuid: device.memory_bytes for device in devices}
    untouched = sorted(_untouched(free, devices), key=lambda uuid: sizes[uuid])
    return dict.fromkeys(untouched[:count], WHOLE) if len(untouched) >= count else None


def _take_fraction(free: Free, wanted: Mapping[str, float]) -> dict[str, float] | None:
    """The fullest device that has room."""
    fitting = [uuid for uuid, share in wanted.items() if free.shares[uuid] >= share - ROUNDING]
    if not fitting:
        return None
    best = min(fitting, key=lambda uuid: (free.shares[uuid] - wanted[uuid], fitting.index(uuid)))
    return {best: wanted[best]}


def _share_by_memory(free: Free, devices: Sequence[Device], peak: int) -> dict[str, float] | None:
    wanted = {
        device.uuid: min(WHOLE, max(ROUNDING, peak * (1 + AUTO_MARGIN) / device.memory_bytes))
        for device in devices
        if device.memory_bytes and peak <= device.memory_bytes
    }
    return _take_fraction(free, wanted)


def apart(candidates: Iterable[tuple[Node, Found]], count: int) -> tuple[Found, ...] | None:
    """The first so many that are on different machines, as far as nodes say on which they are."""
    chosen: list[Found] = []
    machines: set[str] = set()
    for node, found in candidates:
        machine = node.labels.get(MACHINE_LABEL, "")
        if machine and machine in machines:
            continue
        machines.add(machine)
        chosen.append(found)
        if len(chosen) == count:
            return tuple(chosen)
    return None
