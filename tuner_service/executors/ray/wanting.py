"""How many nodes are wanted, and which of those that exist have to go. Pure: time comes in as an argument.

Nodes come in groups: of one node each, or of several that are on different machines and go together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner_service.dispatcher.room import Room
from tuner_service.domain.node_kinds import NodeKind, NodeShape
from tuner_service.executor_options import RayNodes
from tuner_service.service.node_tokens import PREFIX

MISSING_S = 3.0  # an agent that the bridge has not told of for so long is not there: it may be newer than what it told
UNUSED_S = 10.0  # a node that has not come yet, and is not needed any more, is waited for so long at most
ENDING = frozenset({"ending", "ended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One node as the bridge tells of it. ``draining_s``: what Ray leaves it, 0 where it may stay."""

    agent_id: str
    group: str = ""
    kind: NodeKind = field(default_factory=NodeKind)
    phase: str = "starting"
    reason: str = ""
    draining_s: float = 0.0
    host: str = ""
    ray_node: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Observed:
        return cls(
            agent_id=str(item["agent"]),
            group=str(item["group"]),
            kind=NodeKind(pool=str(item["pool"]), size=int(item["size"]), shape=NodeShape(**item["shape"])),
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
        """Of groups that are whole."""
        return [one for group in self._groups(observed) for one in group]

    def _groups(self, observed: Iterable[Observed]) -> list[list[Observed]]:
        found: dict[str, list[Observed]] = {}
        for one in observed:
            if one.stays and one.agent_id not in self.ending:
                found.setdefault(one.group or one.agent_id, []).append(one)
        return [group for group in found.values() if len(group) == group[0].kind.size]

    def coming(self, observed: Iterable[Observed], connected: Collection[str]) -> dict[NodeKind, int]:
        """Groups that are not there yet, by kind."""
        found: dict[NodeKind, int] = {}
        for group in self._groups(observed):
            if any(one.agent_id not in connected for one in group):
                found[group[0].kind] = found.get(group[0].kind, 0) + 1
        return found

    def wanted(self, observed: Iterable[Observed], room: Room) -> dict[NodeKind, int]:
        """How many groups of each kind there should be: those that stay, coming ones included, and what is lacking.

        Where nothing waits, a group that runs nothing is not counted: if it is lost, nobody needs another one.
        """
        own = NodeKind(shape=self.nodes.shape, runtime_env={})
        found = dict(room.lacking)  # whoever lacks one can say how it is made
        others = sum(count * kind.size for kind, count in found.items() if kind != own)
        for group in self._groups(observed):
            kind = group[0].kind
            others += 0 if kind == own else kind.size
            if room.waits or any(one.agent_id in room.busy for one in group):
                found[kind] = found.get(kind, 0) + 1
        count = max(found.pop(own, 0), self.nodes.least - others)
        return {own: min(self.nodes.most, count), **found}

    def drained(self, observed: Iterable[Observed]) -> dict[str, float]:
        """Those that Ray drains and that were not told yet, with the time they have."""
        return {one.agent_id: one.draining_s for one in observed if one.draining_s and one.agent_id not in self.ending}

    def broken(self, observed: Sequence[Observed]) -> list[str]:
        """Those whose group has lost one, or is about to: alone they are no use to what needed all."""
        whole = {one.agent_id for one in self.staying(observed)}
        left = [one for one in observed if one.stays and one.agent_id not in self.ending]
        return [one.agent_id for one in left if one.agent_id not in whole]

    def idle(self, observed: Sequence[Observed], room: Room, *, now: float) -> list[str]:
        """Those that nobody has needed for long enough, the longest idle first; never below the least."""
        groups = self._groups(observed)
        unused = {one.agent_id for group in groups for one in group} - room.busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in unused}
        if room.lacking or room.waits:
            return []
        due: list[tuple[float, list[str]]] = []
        for group in groups:
            names = [one.agent_id for one in group]
            if all(
                name in unused and now - self._idle_since[name] >= self._limit(one)
                for name, one in zip(names, group, strict=True)
            ):
                due.append((max(self._idle_since[name] for name in names), names))
        left, found = sum(map(len, groups)) - self.nodes.least, []
        for _, names in sorted(due):
            if len(names) <= left:
                found += names
                left -= len(names)
        return found

    def lost(self, observed: Iterable[Observed], known: Collection[str], *, now: float) -> list[str]:
        """Agents of Ray's among ``known`` that the bridge tells nothing of."""
        there = {one.agent_id for one in observed}
        missing = {name for name in known if name.startswith(PREFIX) and name not in there}
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        self.ending = {name: grace for name, grace in self.ending.items() if name in there}
        return sorted(name for name, since in self._missing_since.items() if now - since >= MISSING_S)

    def _limit(self, one: Observed) -> float:
        return self.nodes.idle_s if one.phase == "running" else min(UNUSED_S, self.nodes.idle_s)
