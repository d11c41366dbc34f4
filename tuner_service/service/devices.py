"""The devices of all nodes and the quota groups, with what trials hold of them: what REST and the command line show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trials.wire.devices import NodeDevice
from tuner_service.dispatcher.ledger import UNITS
from tuner_service.dispatcher.quotas import Kind, amounts_of
from tuner_service.domain.resources import DEFAULT_GROUP, QuotaGroup
from tuner_service.domain.trial import Attempt
from tuner_service.ports import Queries
from tuner_service.service.views import View


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    trial: str
    share: float


def device_views(queries: Queries, devices: Mapping[str, Sequence[NodeDevice]]) -> list[View]:
    """``devices``: by agent, of those connected now."""
    held = _held(queries.all_live_attempts())
    return [
        _device_view(agent_id, device, held.get((agent_id, device.uuid), ()))
        for agent_id, found in sorted(devices.items())
        for device in found
    ]


def _held(attempts: Sequence[Attempt]) -> dict[tuple[str, str], list[_Share]]:
    """By agent and device."""
    found: dict[tuple[str, str], list[_Share]] = defaultdict(list)
    for attempt in attempts:
        for holding in attempt.holdings:
            for uuid, share in holding.shares.items():
                trial = f"{attempt.key.experiment_id}/{attempt.key.number}"
                found[holding.agent_id, uuid].append(_Share(trial=trial, share=share))
    return found


def _device_view(agent_id: str, device: NodeDevice, shares: Sequence[_Share]) -> View:
    return {
        "id": device.uuid,
        "uuid": device.uuid,
        "name": device.name,
        "agent": agent_id,
        "memory_bytes": device.memory_bytes,
        "state": "lost" if device.lost else "held" if shares else "occupied" if device.occupied else "free",
        "occupied": device.occupied,
        "lost": device.lost,
        "share": round(sum(one.share for one in shares), 9),
        "trials": [{"id": one.trial, "share": one.share} for one in shares],
    }


def group_views(queries: Queries) -> list[View]:
    """Every quota group by name; the default group always."""
    groups = {DEFAULT_GROUP: QuotaGroup(name=DEFAULT_GROUP)} | {g.name: g for g in queries.quota_groups()}
    experiments = {e.id: e for e in queries.experiments()}
    used: dict[str, Counter[Kind]] = defaultdict(Counter)
    for attempt in queries.all_live_attempts():
        holder = experiments.get(attempt.key.experiment_id)
        if holder is not None:
            used[holder.spec.quota_group] += amounts_of(attempt.holdings)
    drawing: dict[str, list[str]] = defaultdict(list)
    for experiment in experiments.values():
        if not experiment.status.has_ended:
            drawing[experiment.spec.quota_group].append(experiment.id)
    return [_group_view(groups[name], used[name], drawing[name]) for name in sorted(groups)]


def _group_view(group: QuotaGroup, used: Counter[Kind], drawing: Sequence[str]) -> View:
    return {
        "id": group.name,
        "name": group.name,
        "gpus": group.gpus,
        "cpus": group.cpus,
        "memory_bytes": group.memory_bytes,
        "borrows": group.borrows,
        "used": used[Kind.GPUS] / UNITS,
        "used_cpus": used[Kind.CPUS] / UNITS,
        "used_memory_bytes": used[Kind.MEMORY],
        "experiments": sorted(drawing),
    }
