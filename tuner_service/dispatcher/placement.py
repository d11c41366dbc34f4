"""Which waiting trials start, on what, and what has to leave for them: one decision for all experiments of the service.

Pure: ``decide`` looks at nodes, holdings and claims, and says who gets what. Its rules, in this order:

1. A quota group within its quotas goes before one that borrows; what was borrowed is given back as trials end.
2. A higher priority goes first.
3. The experiment that holds the smallest share goes first; then the one that has waited longest.
4. The first claim that fits nowhere now keeps devices (or a node) for itself, so that many small trials never starve a
   large one.
5. A trial of several nodes starts on all of them or on none.
6. Fractions of devices fill the fullest device that has room; whole devices are never shared.
7. A claim that fits nowhere has trials leave that may be preempted, where it goes before them by rules 1 and 2, and
   keeps what they leave: see ``preemption.py``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner_service.dispatcher.fitting import apart, fit_node, gpus_on
from tuner_service.dispatcher.ledger import Free, Ledger
from tuner_service.dispatcher.preemption import MakingRoom, Running
from tuner_service.dispatcher.quotas import Books, Claim, Kind, kinds_wanted
from tuner_service.domain.resources import Demand, Device, GpuRequest, Holding, Node, QuotaGroup

_Key = tuple[float, float, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """``holdings``: one for each node of the trial."""

    claim: Claim
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """``running`` has to leave for ``claim``, which waits for it."""

    running: Running
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``is_short``: whether a claim has found no room, nor room that is being made for it."""

    placed: list[Placed]
    preempted: list[Preempted]
    is_short: bool = False


def place(
    claims: Iterable[Claim], *, nodes: Mapping[str, Node], held: Ledger, groups: Mapping[str, QuotaGroup]
) -> list[Placed]:
    """The trials that start where nothing is preempted."""
    return decide(claims, nodes=nodes, held=held, groups=groups).placed


def decide(
    claims: Iterable[Claim],
    *,
    nodes: Mapping[str, Node],
    held: Ledger,
    groups: Mapping[str, QuotaGroup],
    running: Callable[[], Sequence[Running]] | None = None,
) -> Decision:
    """In the order in which they were chosen. Repeating it with them held, and them leaving, gives no more.

    ``running``: what may be preempted, and what leaves by now, asked for once something has found no room.
    """
    return _Deciding(Room(nodes, held), Books(groups, held, nodes), running).decide(claims)


class _Deciding:
    def __init__(self, room: Room, books: Books, running: Callable[[], Sequence[Running]] | None) -> None:
        self._room, self._books, self._running = room, books, running
        self._making: MakingRoom | None = None
        self._placed: list[Placed] = []
        self._preempted: list[Preempted] = []
        self._kept: frozenset[str] = frozenset()  # nodes and devices that the first claim without room waits for
        self._coming: frozenset[str] = frozenset()  # and those that claims wait for which others make room for
        self._blocked: dict[str, set[Kind]] = {}  # of groups whose first claim waits for its own quota to be free
        self._full: set[Demand] = set()  # what fits nowhere; room only becomes less
        self._is_short = False

    def decide(self, claims: Iterable[Claim]) -> Decision:
        lines = [_Line(waiting, self._books.rank(waiting[-1])) for waiting in _lines(claims)]
        while lines:
            line = min(lines, key=_rank)
            claim = line.waiting[-1]
            if self._holds_room(claim):
                line.waiting.pop()
            else:
                self._is_short = True
                line.waiting.clear()
            if not line.waiting:
                lines.remove(line)
            is_shared = self._books.has_quotas(claim.group)
            for other in lines:  # what is given changes the rank of the same experiment, and of the same group
                if other.claim.experiment_id == claim.experiment_id or (is_shared and other.claim.group == claim.group):
                    other.rank = self._books.rank(other.claim)
        return Decision(placed=self._placed, preempted=self._preempted, is_short=self._is_short)

    def _holds_room(self, claim: Claim) -> bool:
        """Place it, or have others make room for it."""
        if self._blocked.get(claim.group, frozenset()) & kinds_wanted(claim.demand):
            return False
        was_full = claim.demand in self._full
        forbidden = self._books.forbids(claim)
        if not forbidden:
            holdings = self._found(claim.demand)
            forbidden = frozenset() if holdings is None else self._books.forbids(claim, holdings)
            if holdings is not None and not forbidden:
                self._room.take(holdings)
                self._books.take(claim, holdings)
                self._placed.append(Placed(claim=claim, holdings=holdings))
                return True
        if self._makes_room(claim):
            return True
        if forbidden:
            self._blocked.setdefault(claim.group, set()).update(forbidden)
        elif not was_full:
            self._kept = self._kept or self._room.to_keep(claim.demand)
        return False

    def _found(self, demand: Demand) -> tuple[Holding, ...] | None:
        if demand in self._full:
            return None
        holdings = self._room.fit(demand, without=self._kept | self._coming)
        if holdings is None:
            self._full.add(demand)
        return holdings

    def _makes_room(self, claim: Claim) -> bool:
        if self._running is None:
            return False
        if self._making is None:
            self._making = MakingRoom(self._room.now, self._books, self._running())
        plan = self._making.plan(claim)
        if plan is None:
            return False
        self._preempted += [Preempted(running=running, claim=claim) for running in plan.leaving]
        self._coming |= plan.kept
        self._books.take(claim, plan.holdings)
        return True


@dataclass(slots=True)
class _Line:
    """Claims that differ in their number and in how long they wait alone, the first of them last."""

    waiting: list[Claim]
    rank: tuple[bool, int, float, float, str, int]

    @property
    def claim(self) -> Claim:
        return self.waiting[-1]


def _rank(line: _Line) -> tuple[bool, int, float, float, str, int]:
    return line.rank


def _lines(claims: Iterable[Claim]) -> list[list[Claim]]:
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
    return Room(idle, Ledger()).fit(demand, without=frozenset()) is not None


def _without_strangers(device: Device) -> Device:
    return replace(device, occupied=False)


class Room:
    """What all nodes have left, while claims are placed one after the other."""

    def __init__(self, nodes: Mapping[str, Node], held: Ledger) -> None:
        self.now = {node.agent_id: held.left_on(node) for node in nodes.values()}
        self._taken: set[str] = set()  # nodes of which something was taken
        self._queues: dict[tuple[Demand, frozenset[str]], list[_Key]] = {}  # of the nodes where it fits

    def fit(self, demand: Demand, *, without: frozenset[str]) -> tuple[Holding, ...] | None:
        """One holding for each node it asks for, on the nodes that keep the least room over; None if they lack it."""
        if demand.nodes == 1:
            holding = self._fit_one(demand, without)
            return None if holding is None else (holding,)
        found = []
        for agent_id, free in self.now.items():
            holding = None if agent_id in without else fit_node(free, demand, without)
            if holding is not None:
                found.append((_key(free, demand, holding.gpus), holding))
        found.sort(key=lambda entry: entry[0])
        return apart([(self.now[holding.agent_id].node, holding) for _, holding in found], demand.nodes)

    def _fit_one(self, demand: Demand, without: frozenset[str]) -> Holding | None:
        """Each node is looked at once for all claims that ask alike, and again where it has changed since."""
        queue = self._queues.get((demand, without))
        if queue is None:
            queue = self._queues[demand, without] = []
            for agent_id, free in self.now.items():
                gpus = None if agent_id in without else gpus_on(free, demand, without)
                if gpus is not None:
                    queue.append(_key(free, demand, gpus))
            heapq.heapify(queue)
        while queue:
            free = self.now[queue[0][-1]]
            holding = fit_node(free, demand, without)
            if holding is None:
                heapq.heappop(queue)
            elif (key := _key(free, demand, holding.gpus)) != queue[0]:
                heapq.heapreplace(queue, key)
            else:
                return holding
        return None

    def take(self, holdings: Sequence[Holding]) -> None:
        """Only what ``fit`` has found."""
        for holding in holdings:
            agent_id = holding.agent_id
            if agent_id not in self._taken:
                self._taken.add(agent_id)
                self.now[agent_id] = self.now[agent_id].copied()
            free = self.now[agent_id]
            free.book(holding, -1)
            for (demand, without), queue in self._queues.items():
                if agent_id not in without and (gpus := gpus_on(free, demand, without)) is not None:
                    heapq.heappush(queue, _key(free, demand, gpus))  # it may come before what it was

    def to_keep(self, demand: Demand) -> frozenset[str]:
        """What a claim waits for, where it would fit when nothing ran: devices, or nodes; nothing if it never fits."""
        emptiest = sorted(self.now.values(), key=lambda free: (-free.gpus, -free.cpus, free.node.agent_id))
        fitting = (free for free in emptiest if fit_node(Ledger().left_on(free.node), demand))
        chosen = apart(((free.node, free) for free in fitting), demand.nodes)
        if chosen is None:
            return frozenset()
        if not demand.wants_gpu or any(demand.cpus > free.cpus for free in chosen):
            return frozenset(free.node.agent_id for free in chosen)
        count = max(1, math.ceil(demand.gpus)) if demand.request is not GpuRequest.ALL else None
        freest = [sorted(free.shares, key=lambda uuid: -free.shares[uuid]) for free in chosen]  # used at once
        return frozenset(uuid for uuids in freest for uuid in uuids[:count])


def _key(free: Free, demand: Demand, gpus: float) -> _Key:
    """The smallest is taken: devices are packed, cores spread. Trials without devices leave nodes with some alone."""
    first = free.gpus - gpus if demand.wants_gpu else len(free.shares)
    return first, gpus, -free.cpus, free.node.agent_id
