"""Who holds how much: for the order of claims, and for the quotas of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner_service.dispatcher.ledger import UNITS, Ledger, units
from tuner_service.domain.resources import (
    DEFAULT_GROUP,
    ROUNDING,
    WHOLE,
    Demand,
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


class Kind(StrEnum):
    """What a quota group may have a quota of."""

    GPUS = "gpus"
    CPUS = "cpus"
    MEMORY = "memory"


Amounts = Mapping[Kind, int]  # devices and cores in the ledger's units, memory in bytes


def amounts_of(holdings: Iterable[Holding]) -> Counter[Kind]:
    found: Counter[Kind] = Counter()
    for holding in holdings:
        found[Kind.GPUS] += units(holding.gpus)
        found[Kind.CPUS] += units(holding.cpus)
        found[Kind.MEMORY] += holding.memory_bytes
    return found


def kinds_wanted(demand: Demand) -> frozenset[Kind]:
    wanted = {Kind.GPUS: demand.wants_gpu, Kind.CPUS: demand.cpus > 0, Kind.MEMORY: demand.memory_bytes > 0}
    return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)


def least_of(demand: Demand, gpus: float | None = None) -> Counter[Kind]:
    """How much it takes at least, as far as that is known before it is placed. ``gpus``: if not as it asks."""
    return Counter(
        {
            Kind.GPUS: units(demand.gpus if gpus is None else gpus) * demand.nodes,
            Kind.CPUS: units(demand.cpus) * demand.nodes,
            Kind.MEMORY: demand.memory_bytes * demand.nodes,
        }
    )


def quotas_of(group: QuotaGroup) -> dict[Kind, float]:
    """Those that it has, as ``Amounts`` are counted."""
    limits = {
        Kind.GPUS: None if group.gpus is None else group.gpus * UNITS,
        Kind.CPUS: None if group.cpus is None else group.cpus * UNITS,
        Kind.MEMORY: group.memory_bytes,
    }
    return {kind: limit for kind, limit in limits.items() if limit is not None}


def held_by(held: Ledger, group: str) -> Counter[Kind]:
    return Counter(
        {
            Kind.GPUS: held.group_gpus.get(group, 0),
            Kind.CPUS: held.group_cpus.get(group, 0),
            Kind.MEMORY: held.group_memory_bytes.get(group, 0),
        }
    )


class Books:
    """Brought up to date while claims are placed one after the other."""

    def __init__(self, groups: Mapping[str, QuotaGroup], held: Ledger, nodes: Mapping[str, Node]) -> None:
        self._groups = groups
        self._quotas = {name: quotas_of(group) for name, group in groups.items()}
        self._held = {name: held_by(held, name) for name, quotas in self._quotas.items() if quotas}
        self._gpus, self._cpus = dict(held.experiment_gpus), dict(held.experiment_cpus)
        self._all_gpus = sum(len(node.devices) for node in nodes.values()) or 1
        self._all_cpus = sum(node.cpus for node in nodes.values()) or 1.0
        self._fewest_gpus = min((len(node.devices) for node in nodes.values() if node.devices), default=0)

    def rank(self, claim: Claim) -> tuple[bool, int, float, float, str, int]:
        """The smallest goes first."""
        share = round(self.share(claim.experiment_id) / claim.weight, 9)
        over = bool(self.over(claim))
        return (over, -claim.priority, share, claim.since, claim.experiment_id, claim.number)

    def has_quotas(self, group: str) -> bool:
        return bool(self._quotas.get(group))

    def share(self, experiment_id: str) -> float:
        """Of all devices or cores, whichever is more."""
        gpus, cpus = self._gpus.get(experiment_id, 0), self._cpus.get(experiment_id, 0)
        return max(gpus / self._all_gpus, cpus / self._all_cpus) / UNITS

    def forbids(
        self, claim: Claim, holdings: Sequence[Holding] = (), *, less: Amounts | None = None
    ) -> frozenset[Kind]:
        """Of what its group, which may not borrow, has too little left; see ``over``."""
        group = self._groups.get(claim.group)
        return frozenset() if group is None or group.borrows else self.over(claim, holdings, less=less)

    def over(self, claim: Claim, holdings: Sequence[Holding] = (), *, less: Amounts | None = None) -> frozenset[Kind]:
        """Of what its group would hold more than its quota with it. Only what it asks for counts.

        ``holdings``: what it would be given, where that is known. ``less``: what the group is about to give back.
        """
        quotas = self._quotas.get(claim.group)
        if not quotas:
            return frozenset()
        wanted = amounts_of(holdings) if holdings else least_of(claim.demand, self._least_gpus(claim.demand))
        asked = kinds_wanted(claim.demand)
        return frozenset(
            kind
            for kind, quota in quotas.items()
            if kind in asked and self._left(claim.group, kind, less) + wanted[kind] > quota + ROUNDING * UNITS
        )

    def is_beyond(self, group: str, *, less: Amounts | None = None) -> bool:
        """Whether the group holds more than its quota now."""
        quotas = self._quotas.get(group, {})
        return any(self._left(group, kind, less) > quota + ROUNDING * UNITS for kind, quota in quotas.items())

    def _left(self, group: str, kind: Kind, less: Amounts | None) -> int:
        return self._held[group][kind] - (0 if less is None else less.get(kind, 0))

    def take(self, claim: Claim, holdings: Sequence[Holding]) -> None:
        given = amounts_of(holdings)
        if claim.group in self._held:
            self._held[claim.group].update(given)
        self._gpus[claim.experiment_id] = self._gpus.get(claim.experiment_id, 0) + given[Kind.GPUS]
        self._cpus[claim.experiment_id] = self._cpus.get(claim.experiment_id, 0) + given[Kind.CPUS]

    def _least_gpus(self, demand: Demand) -> float:
        if demand.request is GpuRequest.COUNT:
            return demand.gpus
        if demand.request is GpuRequest.ALL:
            return self._fewest_gpus
        return WHOLE if demand.peak_gpu_bytes is None else 0.0
