"""Which running trials leave so that a claim finds room that goes before them.

A claim goes before a running trial whose group holds more than its quotas while the claim's would not, and of two in
the same case before one of a lower priority; in one and the same group the priority alone decides. So a trial that has
left never has the one leave for which it did.

Only what ``Running.may_leave`` says is asked to: see ``making_room.py`` for when that is. As few as possible leave, and
nobody where that would not be enough: first those that come last by the rules above, then of the experiment that holds
most, then those that saved last.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner_service.dispatcher.fitting import apart, fit_node
from tuner_service.dispatcher.ledger import Free
from tuner_service.dispatcher.quotas import Books, Claim, Kind, amounts_of
from tuner_service.domain.resources import ROUNDING, Demand, Holding

NODES_LOOKED_AT = 64  # of those where enough could leave: the best of the first so many

_Class = tuple[bool, int]
_Cost = tuple[list[_Class], int, float, str]  # the dearest of those that leave, how many, when they saved; the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A live attempt. One that does not ``leaves`` is asked to only where it ``may_leave``."""

    experiment_id: str
    number: int
    group: str
    priority: int
    holdings: tuple[Holding, ...]
    leaves: bool = False  # it was told to stop, or will be
    may_leave: bool = False
    saved_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``holdings``: what the claim will get. ``kept``: the devices or nodes of it, which nobody else is given."""

    leaving: list[Running]
    holdings: tuple[Holding, ...]
    kept: frozenset[str]


@dataclass(slots=True)
class _Try:
    """What would be, if these left as well."""

    leaving: list[Running] = field(default_factory=list)
    by_group: dict[str, Counter[Kind]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, running: Running) -> None:
        self.leaving.append(running)
        self.by_group[running.group].update(amounts_of(running.holdings))

    def remove(self, running: Running) -> None:
        self.leaving.remove(running)
        self.by_group[running.group].subtract(amounts_of(running.holdings))


class MakingRoom:
    """What all nodes will have once those have left that are told to, and those are there that wait for it."""

    def __init__(self, now: Mapping[str, Free], books: Books, running: Sequence[Running]) -> None:
        """``now``: what they have by now, and who is placed is taken from."""
        self._now, self._books = now, books
        self._coming: dict[str, list[Holding]] = defaultdict(list)  # by node
        self._reserved: dict[str, list[Holding]] = defaultdict(list)
        self._left: dict[str, Counter[Kind]] = defaultdict(Counter)  # by group
        self._able: dict[tuple[str, int], Running] = {}
        self._on: dict[str, list[Running]] = defaultdict(list)  # by node, those that leave first first
        self._hopeless: set[tuple[Demand, str, int]] = set()
        for one in running:
            if one.leaves:
                self._leave(one)
        for one in sorted((one for one in running if one.may_leave), key=self._order):
            self._able[one.experiment_id, one.number] = one
            for agent_id in {holding.agent_id for holding in one.holdings}:
                self._on[agent_id].append(one)

    def _order(self, running: Running) -> tuple[bool, int, float, float, str, int]:
        return (
            *self._worth(running),
            -self._books.share(running.experiment_id),
            -running.saved_at,
            running.experiment_id,
            running.number,
        )

    def plan(self, claim: Claim) -> Plan | None:
        """Who leaves for it, nobody where those who leave by now suffice; None where nothing would help."""
        key = (claim.demand, claim.group, claim.priority)
        if key in self._hopeless:
            return None
        found = self._within_quota(claim)
        best = None if found is None else self._somewhere(claim, found)
        if best is None:
            self._hopeless.add(key)
            return None
        attempt, holdings = best
        leaving = sorted(attempt.leaving, key=self._order)
        for one in leaving:
            self._leave(one)
            del self._able[one.experiment_id, one.number]
        for holding in holdings:
            self._reserved[holding.agent_id].append(holding)
        kept = frozenset(name for holding in holdings for name in self._kept(holding))
        return Plan(leaving=leaving, holdings=holdings, kept=kept)

    def _kept(self, holding: Holding) -> Iterable[str]:
        """The devices, or the node where it waits for cores or memory."""
        now = self._now[holding.agent_id]
        has_rest = holding.cpus <= now.cpus + ROUNDING and holding.memory_bytes <= now.memory_bytes
        return holding.shares if holding.shares and has_rest else (holding.agent_id,)

    def _leave(self, running: Running) -> None:
        for holding in running.holdings:
            self._coming[holding.agent_id].append(holding)
        self._left[running.group] += amounts_of(running.holdings)

    # ── who ─────────────────────────────────────────────────────────────────────────────────────
    def _within_quota(self, claim: Claim) -> _Try | None:
        """Those of the claim's own group that have to leave for its quota, where it may not borrow."""
        attempt = _Try()
        own = (one for one in self._able.values() if one.group == claim.group)
        while self._books.forbids(claim, less=self._less(claim.group, attempt)):
            leaving = next((one for one in own if self._goes_before(claim, one, attempt)), None)
            if leaving is None:
                return None
            attempt.add(leaving)
        return attempt

    def _somewhere(self, claim: Claim, begun: _Try) -> tuple[_Try, tuple[Holding, ...]] | None:
        """On the node, or the nodes, where those leave that come last."""
        found = itertools.islice(self._each_node(claim, begun), NODES_LOOKED_AT * claim.demand.nodes)
        cheapest = sorted(found, key=lambda entry: entry[0])
        nodes = ((self._now[entry[2].agent_id].node, entry) for entry in cheapest)
        best = apart(nodes, claim.demand.nodes)
        if best is None:
            return None
        together, holdings = _Try(), tuple(holding for _, _, holding in best)
        for _, attempt, _ in best:
            for one in attempt.leaving:
                if one not in together.leaving:
                    together.add(one)
        if self._books.forbids(claim, holdings, less=self._less(claim.group, together)):
            return None
        return together, holdings

    def _each_node(self, claim: Claim, begun: _Try) -> Iterator[tuple[_Cost, _Try, Holding]]:
        """Each node where it would fit, with who would leave there, and how much that would be asked."""
        for agent_id in self._now:
            alone = claim.demand.nodes == 1 and not begun.leaving
            if alone and agent_id not in self._on and agent_id not in self._coming:
                continue  # it did not fit there before
            attempt = _Try()
            for one in begun.leaving:
                attempt.add(one)
            free = self._free(agent_id, begun)
            holding = self._fit(claim, agent_id, free, attempt)
            if holding is not None:
                dearest = [max(self._worth(one) for one in attempt.leaving)] if attempt.leaving else []
                saved = -sum(one.saved_at for one in attempt.leaving)
                yield (dearest, len(attempt.leaving), saved, agent_id), attempt, holding

    def _fit(self, claim: Claim, agent_id: str, free: Free, attempt: _Try) -> Holding | None:
        able = iter(self._on.get(agent_id, ()))
        while (holding := fit_node(free, claim.demand)) is None:
            leaving = next((one for one in able if self._may(claim, one, attempt)), None)
            if leaving is None:
                return None
            attempt.add(leaving)
            _give_back(free, leaving)
        return self._with_fewest(claim, free, attempt, holding)

    def _with_fewest(self, claim: Claim, free: Free, attempt: _Try, holding: Holding) -> Holding:
        """Without those that left in vain, because only a later one made the room."""
        for one in attempt.leaving[::-1]:
            _give_back(free, one, sign=-1)
            attempt.remove(one)
            fits = fit_node(free, claim.demand)
            if fits is not None and not self._books.forbids(claim, less=self._less(claim.group, attempt)):
                holding = fits
            else:
                _give_back(free, one)
                attempt.add(one)
        return holding

    def _free(self, agent_id: str, attempt: _Try) -> Free:
        free = self._now[agent_id].copied()
        for holding in self._coming.get(agent_id, ()):
            free.book(holding, 1)
        for holding in self._reserved.get(agent_id, ()):
            free.book(holding, -1)
        for one in attempt.leaving:
            _give_back(free, one)
        return free

    # ── before whom ─────────────────────────────────────────────────────────────────────────────
    def _may(self, claim: Claim, running: Running, attempt: _Try) -> bool:
        is_able = (running.experiment_id, running.number) in self._able and running not in attempt.leaving
        return is_able and self._goes_before(claim, running, attempt)

    def _goes_before(self, claim: Claim, running: Running, attempt: _Try) -> bool:
        if claim.group == running.group:
            return claim.priority > running.priority
        over = bool(self._books.over(claim, less=self._less(claim.group, attempt)))
        return (over, -claim.priority) < self._class(running, attempt)

    def _class(self, running: Running, attempt: _Try) -> _Class:
        return self._is_beyond(running, attempt), -running.priority

    def _worth(self, running: Running) -> _Class:
        """The larger, the later it is asked."""
        return not self._is_beyond(running), running.priority

    def _is_beyond(self, running: Running, attempt: _Try | None = None) -> bool:
        return self._books.is_beyond(running.group, less=self._less(running.group, attempt or _Try()))

    def _less(self, group: str, attempt: _Try) -> Counter[Kind]:
        return self._left[group] + attempt.by_group[group]


def _give_back(free: Free, running: Running, *, sign: int = 1) -> None:
    for holding in running.holdings:
        if holding.agent_id == free.node.agent_id:
            free.book(holding, sign)
