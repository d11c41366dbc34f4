"""How many further nodes would be of use: what an executor that can provide nodes is told.

Pure. What waits for lack of room is packed onto nodes of the kind that its experiment asks for, one after the other: a
trial of several nodes onto as many that come together, each on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner_service.dispatcher.launching import demand_of
from tuner_service.dispatcher.ledger import UNITS, Ledger
from tuner_service.dispatcher.limits import CLAIMS_FOR_NODES
from tuner_service.dispatcher.placement import place
from tuner_service.dispatcher.quotas import Claim, held_by, least_of, quotas_of
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.domain.experiment import ExperimentSpec, ExperimentStatus
from tuner_service.domain.node_kinds import NodeKind, NodeShape, promised_node
from tuner_service.domain.resources import RAY, ROUNDING, Demand, Node
from tuner_service.domain.trial import TrialStatus

COUNTED = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)  # of a budget of trials
SOMEWHERE = "/"  # the machine of nodes that are on their way alone: perhaps one and the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """``lacking``: further nodes of each kind that would be filled. ``busy``: agents that hold live attempts, connected
    or not.

    ``waits``: whether some trial could start if there were room.
    """

    lacking: Mapping[NodeKind, int]
    waits: bool
    busy: frozenset[str]
    connected: frozenset[str]


def room_of(state: DispatcherState, *, shape: NodeShape, coming: Mapping[NodeKind, int], most: int) -> Room:
    """``coming``: those that are on their way. ``most``: nodes that may be asked for beyond them.

    ``shape`` is of nodes that no experiment has described itself.
    """
    busy = {attempt.agent_id for xs in state.experiments.values() for attempt in xs.attempts.values()}
    busy |= {part.agent_id for xs in state.experiments.values() for a in xs.attempts.values() for part in a.parts}
    waiting = {xs.id: (_kind(xs.experiment.spec, shape), _waiting(state, xs)) for xs in state.experiments.values()}
    claims = [claim for _, found in waiting.values() for claim in found]
    kinds = {name: kind for name, (kind, _) in waiting.items()}
    lacking = _lacking(state, claims, kinds, coming=coming, most=most) if claims else {}
    return Room(lacking=lacking, waits=bool(claims), busy=frozenset(busy), connected=frozenset(state.agents))


def _kind(spec: ExperimentSpec, shape: NodeShape) -> NodeKind:
    asked = spec.executor
    return NodeKind(pool=asked.pool, size=spec.trial.nodes, shape=asked.agents or shape, runtime_env=asked.runtime_env)


def _waiting(state: DispatcherState, xs: ExperimentState) -> list[Claim]:
    """What could start now on such nodes: few trials are suggested before there is room, so the budget counts too."""
    experiment = xs.experiment
    waiting = [trial for trial in xs.trials_with(TrialStatus.WAITING) if trial.number not in xs.held_until]
    if experiment.status is not ExperimentStatus.RUNNING or experiment.spec.trial.is_asked_for or not waiting:
        return []
    names = experiment.spec.executor.names
    if names and RAY not in names:
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


def _lacking(
    state: DispatcherState,
    claims: list[Claim],
    kinds: Mapping[str, NodeKind],
    *,
    coming: Mapping[NodeKind, int],
    most: int,
) -> dict[NodeKind, int]:
    """``kinds``: by experiment."""
    nodes = {name: node for name, node in state.agents.items() if node.takes_trials}
    for kind, count in coming.items():
        for place_ in range(count):
            nodes |= _nodes(kind, place_)
    placed = {(p.claim.experiment_id, p.claim.number) for p in place(claims, nodes=nodes, held=state.ledger, groups={})}
    left: dict[NodeKind, list[Claim]] = {}
    for claim in claims:
        if (claim.experiment_id, claim.number) not in placed:
            left.setdefault(kinds[claim.experiment_id], []).append(claim)
    wanted: dict[NodeKind, int] = {}
    for kind, some in left.items():
        count = _filled(kind, some, most=most)
        most -= count * kind.size
        wanted |= {kind: count} if count else {}
    return wanted


def _filled(kind: NodeKind, left: list[Claim], *, most: int) -> int:
    """How many of a kind it takes for all of them; no more nodes than ``most``."""
    count = 0
    while left and (count + 1) * kind.size <= most:
        taken = place(left, nodes=_nodes(kind, 0), held=Ledger(), groups={})
        if taken:
            count += 1
            gone = {(p.claim.experiment_id, p.claim.number) for p in taken}
            left = [claim for claim in left if (claim.experiment_id, claim.number) not in gone]
        else:  # its demand is more than any such node has
            left = [claim for claim in left if claim.demand != left[0].demand]
    return count


def _nodes(kind: NodeKind, place_: int) -> dict[str, Node]:
    """Of one such request; named as no agent is."""
    names = [f"/{kind.pool}/{kind.size}/{place_}/{member}" for member in range(kind.size)]
    machines = {name: name if kind.size > 1 else SOMEWHERE for name in names}
    return {n: promised_node(kind.shape, pool=kind.pool, name=n, machine=machines[n]) for n in names}
