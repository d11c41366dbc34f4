"""How many further nodes would be of use: what an executor that can provide nodes is told.

Pure. Nodes of one shape can be had; what waits for lack of room is packed onto them, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner_service.dispatcher.launching import demand_of
from tuner_service.dispatcher.ledger import UNITS, Ledger
from tuner_service.dispatcher.limits import CLAIMS_FOR_NODES
from tuner_service.dispatcher.placement import place
from tuner_service.dispatcher.quotas import Claim, held_by, least_of, quotas_of
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.resources import ROUNDING, Demand, Device, Node
from tuner_service.domain.trial import TrialStatus

COUNTED = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)  # of a budget of trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """``lacking``: further nodes that would be filled. ``busy``: agents that hold live attempts, connected or not.

    ``waits``: whether some trial could start if there were room.
    """

    lacking: int
    waits: bool
    busy: frozenset[str]
    connected: frozenset[str]


def room_of(state: DispatcherState, *, shape: Node, coming: int, most: int) -> Room:
    """``coming``: nodes of this shape that are on their way. ``most``: of those that may be asked for beyond them."""
    busy = {attempt.agent_id for xs in state.experiments.values() for attempt in xs.attempts.values()}
    claims = [claim for xs in state.experiments.values() for claim in _waiting(state, xs)]
    lacking = _lacking(state, claims, shape=shape, coming=coming, most=most) if claims else 0
    return Room(lacking=lacking, waits=bool(claims), busy=frozenset(busy), connected=frozenset(state.agents))


def _waiting(state: DispatcherState, xs: ExperimentState) -> list[Claim]:
    """What could start now if there were room: few trials are suggested before there is, so the budget counts too."""
    experiment = xs.experiment
    waiting = [trial for trial in xs.trials_with(TrialStatus.WAITING) if trial.number not in xs.held_until]
    if experiment.status is not ExperimentStatus.RUNNING or experiment.spec.trial.is_asked_for or not waiting:
        return []
    budget, running = experiment.spec.budget, len(xs.attempts)
    room = min(budget.parallel - running, CLAIMS_FOR_NODES)
    if budget.trials is not None:
        done = sum(experiment.counts.get(status.value, 0) for status in COUNTED)
        room = min(room, max(len(waiting), budget.trials - done - running))
    demand = demand_of(experiment.spec, peak_gpu_bytes=experiment.peak_gpu_bytes)
    group, priority = experiment.spec.quota_group, experiment.priority
    room = min(room, _within_quota(state, group, demand))
    return [
        Claim(experiment_id=xs.id, number=number, demand=demand, group=group, priority=priority)
        for number in range(1, room + 1)
    ]


def _within_quota(state: DispatcherState, name: str, demand: Demand) -> int:
    """How many such trials the group may have beside those that run."""
    group = state.groups.get(name)
    if group is None or group.borrows:
        return CLAIMS_FOR_NODES
    held, wanted = held_by(state.ledger, name), least_of(demand)
    room = [
        int((quota - held[kind] + ROUNDING * UNITS) / wanted[kind])
        for kind, quota in quotas_of(group).items()
        if wanted[kind]
    ]
    return max(0, min([CLAIMS_FOR_NODES, *room]))


def _lacking(state: DispatcherState, claims: list[Claim], *, shape: Node, coming: int, most: int) -> int:
    able = {name: node for name, node in state.agents.items() if not node.trouble}
    nodes = {**able, **_nodes(shape, coming)}
    placed = {(p.claim.experiment_id, p.claim.number) for p in place(claims, nodes=nodes, held=state.ledger, groups={})}
    left = [claim for claim in claims if (claim.experiment_id, claim.number) not in placed]
    wanted = 0
    while left:
        nodes_at_once = left[0].demand.nodes
        if wanted + nodes_at_once > most:
            break
        taken = place(left, nodes=_nodes(shape, nodes_at_once), held=Ledger(), groups={})
        if taken:
            wanted += nodes_at_once
            gone = {(p.claim.experiment_id, p.claim.number) for p in taken}
            left = [claim for claim in left if (claim.experiment_id, claim.number) not in gone]
        else:  # its demand is more than any such node has
            left = [claim for claim in left if claim.demand != left[0].demand]
    return wanted


def _nodes(shape: Node, count: int) -> dict[str, Node]:
    """Named as no agent is."""
    names = [f"/{place_}" for place_ in range(count)]
    return {name: replace(shape, agent_id=name, devices=_devices(shape, name)) for name in names}


def _devices(shape: Node, name: str) -> tuple[Device, ...]:
    return tuple(replace(device, uuid=f"{name}/{device.uuid}") for device in shape.devices)
