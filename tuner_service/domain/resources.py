"""What nodes have, what a trial asks for, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

AUTO_MARGIN = 0.1  # of a measured peak, added before as many trials as fit share a device
WHOLE = 1.0
ROUNDING = 1e-9  # shares are sums of fractions
Labels = tuple[tuple[str, str], ...]  # names and values
MACHINE_LABEL = "machine"  # parts of one trial are never on nodes that have the same
POOL_LABEL = "ray-pool"  # of nodes that experiments have described themselves; empty of all others
LOCAL, JOINED, RAY = "local", "joined", "ray"
EXECUTORS = (LOCAL, JOINED, RAY)
RAY_PREFIX = "ray-"  # of the names of Ray's agents; nobody else's token is good for one
DEFAULT_GROUP = "default"  # always there; without a quota unless it is given one


class GpuRequest(StrEnum):
    """How ``Demand.gpus`` is meant."""

    COUNT = "count"  # so many whole devices, or a fraction of one
    AUTO = "auto"  # one device for each trial until its memory is known, then as many trials as fit
    ALL = "all"  # every device of one node that is not lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one MIG instance, by its UUID.

    ``occupied``: another program uses it, or its memory did not come back. ``lost``: why it cannot be used any more.
    """

    uuid: str
    name: str = ""
    memory_bytes: int = 0
    occupied: bool = False
    lost: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.occupied and not self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What an agent says its node has."""

    agent_id: str
    cpus: float = 0.0
    memory_bytes: int = 0
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    executor: str = ""  # who has brought it: one of EXECUTORS
    trouble: str = ""  # why nothing can be started there now, and what to do about it
    drained: bool = False  # a person wants nothing started there

    @property
    def takes_trials(self) -> bool:
        return not self.trouble and not self.drained

    def may_take(self, demand: Demand) -> bool:
        """Whether it is such a node as the trial wants, however much room it has."""
        if demand.executors and self.executor not in demand.executors:
            return False
        return all(self.labels.get(name) == value for name, value in demand.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one trial, on each of its ``nodes``. ``peak_gpu_bytes``: what trials of its experiment were seen to use."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0
    request: GpuRequest = GpuRequest.COUNT
    gpu_memory_bytes: int = 0
    peak_gpu_bytes: int | None = None
    nodes: int = 1
    labels: Labels = ()  # that each of its nodes must have
    executors: tuple[str, ...] = ()  # that may have brought its nodes; none: any

    @property
    def is_nothing(self) -> bool:
        """Whether it fits wherever there is an agent."""
        asks = self.wants_gpu or self.cpus or self.memory_bytes or self.labels or self.executors
        return self.nodes == 1 and not asks

    @property
    def wants_gpu(self) -> bool:
        return self.request is not GpuRequest.COUNT or self.gpus > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one attempt has on one node: shares of devices, 1.0 being all of one."""

    agent_id: str
    cpus: float = 0.0
    memory_bytes: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    gpu_memory_bytes: int = 0  # on each of those devices

    @property
    def gpus(self) -> float:
        return sum(self.shares.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroup:
    """A named share of devices, cores and memory, each None for as much as there is.

    ``borrows``: it may use what others leave idle.
    """

    name: str
    gpus: float | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    borrows: bool = True


def executor_of(agent_id: str) -> str:
    """Who has brought the node of that name."""
    if agent_id == LOCAL:
        return LOCAL
    return RAY if agent_id.startswith(RAY_PREFIX) else JOINED


def describe(nodes: Mapping[str, Node]) -> str:
    """What exists, for a message to a person."""
    parts = []
    for node in nodes.values():
        named = [device.name or "GPU" for device in node.devices if not device.lost]
        gpus = ", ".join(f"{named.count(name)} × {name}" for name in dict.fromkeys(named)) or "no GPU"
        lost = len(node.devices) - len(named)
        gpus += f", {lost} lost" if lost else ""
        labels = "".join(f", {name}={value}" for name, value in sorted(node.labels.items()))
        parts.append(f"{node.agent_id} ({node.cpus:g} cores, {node.memory_bytes / 2**30:.0f} GiB, {gpus}{labels})")
    return "; ".join(parts) or "no node"


def describe_demand(demand: Demand) -> str:
    """What one trial asks for, for a message to a person."""
    gpus = {GpuRequest.ALL: "all GPUs", GpuRequest.AUTO: "a GPU"}.get(
        demand.request, f"{demand.gpus:g} GPU{'' if demand.gpus == 1 else 's'}"
    )
    named = {
        gpus: demand.wants_gpu,
        f"{demand.gpu_memory_bytes / 2**30:.3g} GiB on each": demand.wants_gpu and demand.gpu_memory_bytes,
        f"{demand.cpus:g} cores": demand.cpus,
        f"{demand.memory_bytes / 2**30:.3g} GiB of memory": demand.memory_bytes,
    }
    named |= {f"label {name}={value}": True for name, value in demand.labels}
    named |= {f"a node of executor {' or '.join(demand.executors)}": bool(demand.executors)}
    asked = ", ".join(name for name, is_asked in named.items() if is_asked) or "nothing"
    return asked if demand.nodes == 1 else f"{asked} on each of {demand.nodes} nodes"
