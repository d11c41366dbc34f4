"""Which waiting trials start, and on what: one decision for all experiments of the service.

Pure: ``place`` looks at nodes, holdings and claims, and says who gets what. Its rules, in this order:

1. A quota group within its quota goes before one that borrows; what was borrowed is given back as trials end.
2. A higher priority goes first.
3. The experiment that holds the smallest share goes first; then the one that has waited longest.
4. The first claim that fits nowhere now keeps devices (or a node) for itself, so that many small trials never starve a
   large one.
5. A trial of several nodes starts on all of them or on none.
6. Fractions of devices fill the fullest device that has room; whole devices are never shared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner_service.dispatcher.ledger import UNITS, Ledger, units
from tuner_service.domain.resources import (
    AUTO_MARGIN,
    DEFAULT_GROUP,
    ROUNDING,
    WHOLE,
    Demand,
    Device,
    GpuRequest,
    Holding,
    Node,
    QuotaGroup,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One waiting trial. ``weight`` of its experiment: twice the weight is twice the share."""

    experiment_id: str
    number: int
    demand: Demand
    group: str = DEFAULT_GROUP
    priority: int = 0
    since: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """``holdings``: one for each node of the trial."""

    claim: Claim
    holdings: tuple[Holding, ...]


def place(
    claims: Iterable[Claim], *, nodes: Mapping[str, Node], held: Ledger, groups: Mapping[str, QuotaGroup]
) -> list[Placed]:
    """The trials that start now, in the order in which they were chosen. Repeating it with them held gives no more."""
    room = _Room(nodes, held)
    books = _Books(groups, held, nodes)
    placed: list[Placed] = []
    kept: frozenset[str] = frozenset()  # nodes and devices that the first claim without room waits for
    blocked: set[str] = set()  # groups whose first claim waits for its own quota to be free
    full: set[Demand] = set()  # what fits nowhere; room only becomes less
    lines = _lines(claims)
    while lines:
        line = min(lines, key=lambda waiting: books.rank(waiting[-1]))  # it changes with all that is given
        claim = line[-1]
        if claim.demand in full or (claim.group in blocked and claim.demand.wants_gpu):
            lines.remove(line)
            continue
        if not books.allows(claim):
            blocked.add(claim.group)
            continue
        holdings = room.fit(claim.demand, without=kept)
        if holdings is None:
            full.add(claim.demand)
            kept = kept or room.to_keep(claim.demand)
            continue
        if not books.allows(claim, gpus=sum(holding.gpus for holding in holdings)):
            blocked.add(claim.group)
            continue
        room.take(holdings)
        books.take(claim, holdings)
        placed.append(Placed(claim=claim, holdings=holdings))
        line.pop()
        if not line:
            lines.remove(line)
    return placed


def _lines(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Claims that differ in their number and in how long they wait alone, the first of each line last."""
    lines: dict[tuple[str, Demand, str, int, float], list[Claim]] = {}
    for claim in claims:
        key = (claim.experiment_id, claim.demand, claim.group, claim.priority, claim.weight)
        lines.setdefault(key, []).append(claim)
    for line in lines.values():
        line.sort(key=lambda claim: (claim.since, claim.number), reverse=True)
    return list(lines.values())


def could_ever_fit(demand: Demand, nodes: Mapping[str, Node]) -> bool:
    """Whether it fits when nothing else runs and strangers have gone; a lost device does not count as there."""
    idle = {name: replace(node, devices=tuple(map(_without_strangers, node.devices))) for name, node in nodes.items()}
    return _Room(idle, Ledger()).fit(demand, without=frozenset()) is not None


def _without_strangers(device: Device) -> Device:
    return replace(device, occupied=False)


class _Books:
    """Who holds how much: for the order of claims, and for quotas."""

    def __init__(self, groups: Mapping[str, QuotaGroup], held: Ledger, nodes: Mapping[str, Node]) -> None:
        self._groups = groups
        self._group_gpus = dict(held.group_gpus)
        self._gpus, self._cpus = dict(held.experiment_gpus), dict(held.experiment_cpus)
        self._all_gpus = sum(len(node.devices) for node in nodes.values()) or 1
        self._all_cpus = sum(node.cpus for node in nodes.values()) or 1.0
        self._fewest_gpus = min((len(node.devices) for node in nodes.values() if node.devices), default=0)

    def rank(self, claim: Claim) -> tuple[bool, int, float, float, str, int]:
        """The smallest goes first."""
        gpus, cpus = self._gpus.get(claim.experiment_id, 0), self._cpus.get(claim.experiment_id, 0)
        share = max(gpus / self._all_gpus, cpus / self._all_cpus) / UNITS / claim.weight
        over = self._is_over(claim)
        return (over, -claim.priority, round(share, 9), claim.since, claim.experiment_id, claim.number)

    def allows(self, claim: Claim, *, gpus: float | None = None) -> bool:
        """``gpus``: what it would be given, where that is known."""
        group = self._groups.get(claim.group)
        return group is None or group.borrows or not self._is_over(claim, gpus=gpus)

    def take(self, claim: Claim, holdings: Sequence[Holding]) -> None:
        gpus, cpus = sum(units(h.gpus) for h in holdings), sum(units(h.cpus) for h in holdings)
        self._group_gpus[claim.group] = self._group_gpus.get(claim.group, 0) + gpus
        self._gpus[claim.experiment_id] = self._gpus.get(claim.experiment_id, 0) + gpus
        self._cpus[claim.experiment_id] = self._cpus.get(claim.experiment_id, 0) + cpus

    def _is_over(self, claim: Claim, *, gpus: float | None = None) -> bool:
        """Whether its group would hold more than its quota with it. Only what needs devices counts."""
        group = self._groups.get(claim.group)
        if group is None or group.gpus is None or not claim.demand.wants_gpu:
            return False
        wanted = self._least_gpus(claim.demand) * claim.demand.nodes if gpus is None else gpus
        return self._group_gpus.get(claim.group, 0) / UNITS + wanted > group.gpus + ROUNDING

    def _least_gpus(self, demand: Demand) -> float:
        """How much of the devices it takes on a node at least, as far as that is known before it is placed."""
        if demand.request is GpuRequest.COUNT:
            return demand.gpus
        if demand.request is GpuRequest.ALL:
            return self._fewest_gpus
        return WHOLE if demand.peak_gpu_bytes is None else 0.0


@dataclass(slots=True)
class _Free:
    """What one node has left."""

    node: Node
    cpus: float
    memory_bytes: int
    shares: dict[str, float] = field(default_factory=dict)  # of each usable device
    gpu_memory: dict[str, int] = field(default_factory=dict)


class _Room:
    """What all nodes have left, while claims are placed one after the other."""

    def __init__(self, nodes: Mapping[str, Node], held: Ledger) -> None:
        self._free = {node.agent_id: _free_of(node, held) for node in nodes.values()}

    def fit(self, demand: Demand, *, without: frozenset[str]) -> tuple[Holding, ...] | None:
        """One holding for each node it asks for, on the nodes that keep the least room over; None if they lack it."""
        found = []
        for agent_id, free in self._free.items():
            holding = None if agent_id in without else _fit_node(free, demand, without)
            if holding is not None:
                left = sum(free.shares.values()) - holding.gpus
                # Trials without devices leave those nodes alone that have some; cores are spread, devices packed.
                first = left if demand.wants_gpu else len(free.shares)
                found.append((first, holding.gpus, -free.cpus, agent_id, holding))
        found.sort(key=lambda entry: entry[:-1])
        if len(found) < demand.nodes:
            return None
        return tuple(entry[-1] for entry in found[: demand.nodes])

    def take(self, holdings: Sequence[Holding]) -> None:
        """Only what ``fit`` has found."""
        for holding in holdings:
            free = self._free[holding.agent_id]
            free.cpus -= holding.cpus
            free.memory_bytes -= holding.memory_bytes
            for uuid, share in holding.shares.items():
                free.shares[uuid] -= share
                free.gpu_memory[uuid] -= holding.gpu_memory_bytes

    def to_keep(self, demand: Demand) -> frozenset[str]:
        """What a claim waits for, where it would fit when nothing ran: devices, or nodes; nothing if it never fits."""
        fitting = [free for free in self._free.values() if _fit_node(_free_of(free.node, Ledger()), demand)]
        if len(fitting) < demand.nodes:
            return frozenset()
        fitting.sort(key=lambda free: (-sum(free.shares.values()), -free.cpus, free.node.agent_id))
        chosen = fitting[: demand.nodes]
        if not demand.wants_gpu or any(demand.cpus > free.cpus for free in chosen):
            return frozenset(free.node.agent_id for free in chosen)
        count = max(1, math.ceil(demand.gpus)) if demand.request is not GpuRequest.ALL else None
        emptiest = [sorted(free.shares, key=lambda uuid: -free.shares[uuid]) for free in chosen]  # used at once
        return frozenset(uuid for uuids in emptiest for uuid in uuids[:count])


def _free_of(node: Node, held: Ledger) -> _Free:
    name = node.agent_id
    usable = [device for device in node.devices if device.is_usable]
    return _Free(
        node=node,
        cpus=held.free_cpus(node),
        memory_bytes=node.memory_bytes - held.memory_bytes.get(name, 0),
        shares={device.uuid: WHOLE - held.shares.get((name, device.uuid), 0) / UNITS for device in usable},
        gpu_memory={d.uuid: d.memory_bytes - held.gpu_memory_bytes.get((name, d.uuid), 0) for d in usable},
    )


def _fit_node(free: _Free, demand: Demand, without: frozenset[str] = frozenset()) -> Holding | None:
    if demand.cpus > free.cpus + ROUNDING or demand.memory_bytes > free.memory_bytes:
        return None
    if not free.node.has_labels(demand.labels):
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


def _shares(free: _Free, demand: Demand, without: frozenset[str]) -> dict[str, float] | None:
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


def _has_memory(free: _Free, device: Device, demand: Demand) -> bool:
    return device.uuid in free.shares and free.gpu_memory[device.uuid] >= demand.gpu_memory_bytes


def _untouched(free: _Free, devices: Sequence[Device]) -> list[str]:
    return [device.uuid for device in devices if free.shares[device.uuid] >= WHOLE - ROUNDING]


def _take_whole(free: _Free, devices: Sequence[Device], count: int) -> dict[str, float] | None:
    """The smallest devices that do."""
    sizes = {device.uuid: device.memory_bytes for device in devices}
    untouched = sorted(_untouched(free, devices), key=lambda uuid: sizes[uuid])
    return dict.fromkeys(untouched[:count], WHOLE) if len(untouched) >= count else None


def _take_fraction(free: _Free, wanted: Mapping[str, float]) -> dict[str, float] | None:
    """The fullest device that has room."""
    fitting = [uuid for uuid, share in wanted.items() if free.shares[uuid] >= share - ROUNDING]
    if not fitting:
        return None
    best = min(fitting, key=lambda uuid: (free.shares[uuid] - wanted[uuid], fitting.index(uuid)))
    return {best: wanted[best]}


def _share_by_memory(free: _Free, devices: Sequence[Device], peak: int) -> dict[str, float] | None:
    wanted = {
        device.uuid: min(WHOLE, max(ROUNDING, peak * (1 + AUTO_MARGIN) / device.memory_bytes))
        for device in devices
        if device.memory_bytes and peak <= device.memory_bytes
    }
    return _take_fraction(free, wanted)
