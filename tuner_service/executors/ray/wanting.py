"""How many nodes are wanted, and which of those that exist have to go. Pure: time comes in as an argument."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner_service.dispatcher.room import Room
from tuner_service.executor_options import RayNodes
from tuner_service.service.node_tokens import PREFIX

MISSING_S = 3.0  # an agent that the bridge has not told of for so long is not there: it may be newer than what it told
UNUSED_S = 10.0  # a node that has not come yet, and is not needed any more, is waited for so long at most
ENDING = frozenset({"ending", "ended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One node as the bridge tells of it. ``draining_s``: what Ray leaves it, 0 where it may stay."""

    agent_id: str
    phase: str = "starting"
    reason: str = ""
    draining_s: float = 0.0
    host: str = ""
    ray_node: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Observed:
        return cls(
            agent_id=str(item["agent"]),
            phase=str(item["phase"]),
            reason=str(item["reason"]),
            draining_s=float(item["draining"]),
            host=str(item["host"]),
            ray_node=str(item["ray_node"]),
        )

    @property
    def stays(self) -> bool:
        return self.phase not in ENDING and not self.draining_s


@dataclass(kw_only=True)
class Wanting:
    """Remembers since when something is so. ``ending``: nodes that are given back, and the grace of their trials."""

    nodes: RayNodes
    ending: dict[str, float] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)
    _missing_since: dict[str, float] = field(default_factory=dict)

    def staying(self, observed: Iterable[Observed]) -> list[Observed]:
        return [one for one in observed if one.stays and one.agent_id not in self.ending]

    def count(self, observed: Sequence[Observed], *, lacking: int) -> int:
        """How many there should be; ``lacking`` beside those that stay, coming ones included."""
        return max(self.nodes.least, min(self.nodes.most, len(self.staying(observed)) + lacking))

    def drained(self, observed: Iterable[Observed]) -> dict[str, float]:
        """Those that Ray drains and that were not told yet, with the time they have."""
        return {one.agent_id: one.draining_s for one in observed if one.draining_s and one.agent_id not in self.ending}

    def idle(self, observed: Sequence[Observed], room: Room, *, now: float) -> list[str]:
        """Those that nobody has needed for long enough, the longest idle first; never below the least."""
        staying = self.staying(observed)
        unused = {one.agent_id for one in staying} - room.busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in unused}
        if room.lacking or room.waits:
            return []
        limits = {one.agent_id: self._limit(one) for one in staying if one.agent_id in unused}
        due = [name for name, limit in limits.items() if now - self._idle_since[name] >= limit]
        due.sort(key=lambda name: (self._idle_since[name], name))
        return due[: max(0, len(staying) - self.nodes.least)]

    def lost(self, observed: Iterable[Observed], known: Collection[str], *, now: float) -> list[str]:
        """Agents of Ray's among ``known`` that the bridge tells nothing of."""
        there = {one.agent_id for one in observed}
        missing = {name for name in known if name.startswith(PREFIX) and name not in there}
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        self.ending = {name: grace for name, grace in self.ending.items() if name in there}
        return sorted(name for name, since in self._missing_since.items() if now - since >= MISSING_S)

    def _limit(self, one: Observed) -> float:
        return self.nodes.idle_s if one.phase == "running" else min(UNUSED_S, self.nodes.idle_s)
