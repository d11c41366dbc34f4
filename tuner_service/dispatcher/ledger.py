"""What running attempts hold, added up: so that placing a trial costs the same however many run.

Cores and shares of devices are counted in whole units: adding and giving back leaves nothing over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tuner_service.domain.resources import ROUNDING, WHOLE, Holding, Node

UNITS = 10**9  # of one core, and of one device
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a running attempt holds, and for whom."""

    experiment_id: str
    group: str
    holdings: Sequence[Holding]


@dataclass(slots=True)
class Free:
    """What one node has left."""

    node: Node
    cpus: float
    memory_bytes: int
    shares: dict[str, float] = field(default_factory=dict)  # of each usable device
    gpu_memory: dict[str, int] = field(default_factory=dict)
    # Of all devices, and how many of them nobody holds, where it was looked at since ``book``.
    _gpus: float = field(default=-1.0, compare=False)
    _whole: int = field(default=-1, compare=False)

    @property
    def gpus(self) -> float:
        if self._gpus < 0:
            self._look()
        return self._gpus

    @property
    def whole(self) -> int:
        """How many devices are free altogether."""
        if self._gpus < 0:
            self._look()
        return self._whole

    def _look(self) -> None:
        self._gpus = sum(self.shares.values())
        self._whole = sum(share >= WHOLE - ROUNDING for share in self.shares.values())

    def book(self, holding: Holding, sign: int) -> None:
        """Take it (-1), or give it back (1), but for what is on devices that cannot be used any more."""
        self._gpus = -1.0
        self.cpus += sign * holding.cpus
        self.memory_bytes += sign * holding.memory_bytes
        for uuid, share in holding.shares.items():
            if uuid in self.shares:
                self.shares[uuid] += sign * share
                self.gpu_memory[uuid] += sign * holding.gpu_memory_bytes

    def copied(self) -> Free:
        return Free(self.node, self.cpus, self.memory_bytes, dict(self.shares), dict(self.gpu_memory))


@dataclass(slots=True, kw_only=True)
class Ledger:
    """By agent, by (agent, device), by quota group and by experiment; nothing stands where nothing is held."""

    cpus: dict[str, int] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    shares: dict[tuple[str, str], int] = field(default_factory=dict)
    gpu_memory_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    group_gpus: dict[str, int] = field(default_factory=dict)
    group_cpus: dict[str, int] = field(default_factory=dict)
    group_memory_bytes: dict[str, int] = field(default_factory=dict)
    experiment_gpus: dict[str, int] = field(default_factory=dict)
    experiment_cpus: dict[str, int] = field(default_factory=dict)
    _left: dict[str, Free] = field(default_factory=dict, compare=False)  # what follows from the above, where asked for

    @classmethod
    def of(cls, held: Iterable[Held]) -> Ledger:
        ledger = cls()
        for one in held:
            ledger.add(one)
        return ledger

    def add(self, held: Held) -> None:
        self._book(held, 1)

    def remove(self, held: Held) -> None:
        """What was added before."""
        self._book(held, -1)

    def free_cpus(self, node: Node) -> float:
        return node.cpus - self.cpus.get(node.agent_id, 0) / UNITS

    def left_on(self, node: Node) -> Free:
        """Made once for each node until it changes, or what is held of it: not to be changed."""
        free = self._left.get(node.agent_id)
        if free is None or free.node is not node:
            free = self._left[node.agent_id] = self._left_on(node)
        return free

    def _left_on(self, node: Node) -> Free:
        name = node.agent_id
        usable = [device for device in node.devices if device.is_usable]
        return Free(
            node=node,
            cpus=self.free_cpus(node),
            memory_bytes=node.memory_bytes - self.memory_bytes.get(name, 0),
            shares={device.uuid: WHOLE - self.shares.get((name, device.uuid), 0) / UNITS for device in usable},
            gpu_memory={d.uuid: d.memory_bytes - self.gpu_memory_bytes.get((name, d.uuid), 0) for d in usable},
        )

    def forget_node(self, agent_id: str) -> None:
        """It is gone: what is held of it stays counted."""
        self._left.pop(agent_id, None)

    def _book(self, held: Held, sign: int) -> None:
        for holding in held.holdings:
            cpus, agent_id = sign * units(holding.cpus), holding.agent_id
            self._left.pop(agent_id, None)
            _count(self.cpus, agent_id, cpus)
            _count(self.experiment_cpus, held.experiment_id, cpus)
            _count(self.group_cpus, held.group, cpus)
            _count(self.memory_bytes, agent_id, sign * holding.memory_bytes)
            _count(self.group_memory_bytes, held.group, sign * holding.memory_bytes)
            for uuid, share in holding.shares.items():
                gpus = sign * units(share)
                _count(self.shares, (agent_id, uuid), gpus)
                _count(self.gpu_memory_bytes, (agent_id, uuid), sign * holding.gpu_memory_bytes)
                _count(self.group_gpus, held.group, gpus)
                _count(self.experiment_gpus, held.experiment_id, gpus)


def units(amount: float) -> int:
    return round(amount * UNITS)


def _count(table: dict[KeyT, int], key: KeyT, amount: int) -> None:
    left = table.get(key, 0) + amount
    if left:
        table[key] = left
    else:
        table.pop(key, None)
