"""Nodes that are wanted against those that exist on the cluster.

A node is a detached placement group of one bundle with a detached actor in it, both named after the agent that the
actor holds. Nodes for trials of several are one such group of as many bundles, each on another machine. What is not
found again complete is removed, and counts as lost: making another costs less than doubt.

Who removes a group, whatever dies: this bridge, or the next one, which finds it by its name; where there is none, its
last actor does, when its agent has been without a service for long enough, or when it was never given an order. A group
that has lost its actors is removed by a bridge only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner_service.executors.ray.cluster import GONE, Cluster, NewNode, NodeAwayError, NodeGoneError
from tuner_service.executors.ray.names import agents_of, group_of, name_in, new_agent_id
from tuner_service.service.node_tokens import secret_of

# After a node that never ran, doubled by each such that was asked for later. One that is away is asked again after it.
BACKOFF_S = 1.0
BACKOFF_LIMIT_S = 60.0
BACKOFFS_KEPT = 200  # of pools that cannot be made
AT_ONCE = 16  # nodes that are asked for in one step
LOST_KEPT = 20  # of those that were lost, for people
WITHOUT_PLACE = frozenset({"PENDING", "PREPARED"})
MOVED = "RESCHEDULING"  # by Ray, whose node of the cluster died
_WHY_PENDING = {
    "INFEASIBLE": "no node of the cluster is large enough; an autoscaler may bring one",
    "NO_RESOURCES": "the cluster has no room now; an autoscaler may bring some",
    "QUEUED": "waits in Ray's queue",
    "PENDING": "Ray is looking for a node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A placement group: of one node, or of several that Ray keeps apart."""

    name: str
    pool: str
    size: int
    shape: Mapping[str, int]  # of each

    @classmethod
    def of(cls, name: str, pool: str, bundles: Mapping[int, Mapping[str, float]]) -> _Group:
        """As Ray tells of it."""
        one = next(iter(bundles.values()), {})
        shape = {
            "cpus": int(one.get("CPU", 0)),
            "gpus": int(one.get("GPU", 0)),
            "memory_bytes": int(one.get("memory", 0)),
        }
        return cls(name=name, pool=pool, size=len(bundles) or 1, shape=shape)

    @property
    def agents(self) -> list[str]:
        return agents_of(self.name, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backoff:
    """``since``: when one failed. ``until``: when the next node may be asked for."""

    pause_s: float
    since: float
    until: float


class _Node:
    """One that this bridge knows to exist. ``is_found``: another bridge made it, and trials may run there already."""

    def __init__(self, agent_id: str, group: _Group, actor: Any, *, is_found: bool, at: float) -> None:
        self.agent_id, self.group, self.actor, self.is_found, self.at = agent_id, group, actor, is_found, at
        self.order: dict[str, Any] = {}  # that it was told last
        self.is_to_end = False
        self.is_told_to_end = False
        self.state: dict[str, Any] = {"phase": "starting", "revision": -1}
        self.asked: dict[str, Any] = {}  # questions without an answer yet: "serve", "watch", "end"
        self.retry_at = 0.0

    @property
    def place(self) -> int:
        """Of its bundle."""
        return self.group.agents.index(self.agent_id)

    @property
    def stays(self) -> bool:
        return not self.is_to_end and self.state["phase"] not in {"ending", "ended"}


class Reconciler:
    """``cluster`` is connected. All names have the ``lineage`` of the database."""

    def __init__(self, cluster: Cluster, lineage: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._lineage, self._now = cluster, lineage, now
        self._nodes: dict[str, _Node] = {}
        self._lost: deque[dict[str, str]] = deque(maxlen=LOST_KEPT)
        self._backoffs: dict[str, _Backoff] = {}  # by pool: one that cannot be made costs no other
        self._wanted: dict[str, Any] | None = None

    def step(self, wanted: dict[str, Any] | None) -> dict[str, Any]:
        """Come nearer to what is wanted, and say what exists. ``wanted`` None: as before."""
        self._wanted = wanted or self._wanted
        groups = self._groups()
        self._find_again(groups)
        self._hear(groups)
        if self._wanted is not None:
            self._give_orders(self._wanted, groups)
            self._make_lacking(self._wanted)
        return {
            "items": [self._told(node, groups.get(node.group.name, {})) for node in self._nodes.values()],
            "lost": list(self._lost),
            **self._cluster.facts(),
        }

    def let_go(self) -> None:
        """Nobody waits any more for what has no place yet: a later bridge asks for what is needed then.

        What Ray moves to another node of the cluster has no actor that could give it back later.
        """
        groups = self._groups()
        self._find_again(groups)
        for node in list(self._nodes.values()):
            state = groups.get(node.group.name, {}).get("state")
            if state == "PENDING" or (state == MOVED and node.group.size == 1):
                self._forget(node, "")

    # ── looking ─────────────────────────────────────────────────────────────────────────────────
    def _groups(self) -> dict[str, dict[str, Any]]:
        """The placement groups of this database, by name."""
        found = {}
        for table in self._cluster.groups():
            own = name_in(self._lineage, str(table.get("name")))
            if own is not None and table["state"] not in GONE:
                found[own[0]] = {**table, "pool": own[1]}
        return found

    def _find_again(self, groups: Mapping[str, Any]) -> None:
        known = {node.group.name for node in self._nodes.values()}
        for name in groups.keys() - known:
            group = _Group.of(name, groups[name]["pool"], groups[name]["bundles"])
            for agent_id in group.agents:
                actor = self._cluster.find_node(agent_id)
                if actor is not None:  # else an earlier bridge came no further, or its actor has died
                    self._nodes[agent_id] = _Node(agent_id, group, actor, is_found=True, at=self._now())
            self._remove_if_empty(group)

    def _hear(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """What the actors say, and which of them have gone."""
        for node in list(self._nodes.values()):
            group = groups.get(node.group.name)
            if group is None:
                # Given back, by itself or by our order; or somebody removed it.
                self._forget(node, "" if node.state["phase"] in {"ending", "ended"} else "its placement group is gone")
            elif group["state"] == MOVED and node.group.size == 1:
                self._forget(node, "its node of the cluster died")
            else:
                self._hear_one(node)

    def _hear_one(self, node: _Node) -> None:
        if "watch" not in node.asked and self._now() >= node.retry_at:
            self._ask(node, "watch", node.state["revision"])
        for what, question in list(node.asked.items()):
            if not self._cluster.has_answered(question):
                continue
            del node.asked[what]
            try:
                said = self._cluster.answer(question)
            except NodeAwayError as exc:
                self._ask_again(node, what, str(exc))
            except NodeGoneError as exc:
                self._forget(node, str(exc))
                return
            else:
                if what != "end":
                    node.state = said
                if node.state["phase"] == "running":
                    self._backoffs.pop(node.group.pool, None)

    def _ask(self, node: _Node, what: str, *arguments: Any) -> None:
        node.asked[what] = self._cluster.ask(node.actor, what, *arguments)

    def _ask_again(self, node: _Node, what: str, why: str) -> None:
        """An order that may not have come is given once more, after a pause: it may be repeated."""
        node.state = {**node.state, "reason": why}
        node.retry_at = self._now() + BACKOFF_S
        if what == "serve":
            node.order = {}
        elif what == "end":
            node.is_told_to_end = False

    # ── acting ──────────────────────────────────────────────────────────────────────────────────
    def _give_orders(self, wanted: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]]) -> None:
        for node in list(self._nodes.values()):
            grace_s = wanted["end"].get(node.agent_id)
            node.is_to_end = node.is_to_end or grace_s is not None
            if grace_s is not None and not node.is_told_to_end and self._runs_nothing(node, groups):
                self._forget(node, "")
            elif self._now() >= node.retry_at:
                order = _order_for(node, wanted)
                if node.order != order and "serve" not in node.asked:
                    node.order = order
                    self._ask(node, "serve", order)
                if grace_s is not None and not node.is_told_to_end and "end" not in node.asked:
                    node.is_told_to_end = True
                    self._ask(node, "end", grace_s)

    def _runs_nothing(self, node: _Node, groups: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether it can go at once. What an earlier bridge made runs trials perhaps, and was just not heard yet."""
        if node.state["phase"] != "starting":
            return False
        is_heard = node.state["revision"] >= 0
        return not node.is_found or is_heard or groups.get(node.group.name, {}).get("state") in WITHOUT_PLACE

    def _make_lacking(self, wanted: Mapping[str, Any]) -> None:
        staying: dict[tuple[str, int], set[str]] = {}
        for node in self._nodes.values():
            if node.stays:
                staying.setdefault((node.group.pool, node.group.size), set()).add(node.group.name)
        for asked in wanted["wanted"]:
            count = asked["count"] - len(staying.get((asked["pool"], asked["size"]), ()))
            backoff = self._backoffs.get(asked["pool"])
            if asked["runtime_env"] is None or (backoff is not None and self._now() < backoff.until):
                continue
            for _ in range(min(AT_ONCE, count)):
                self._make(asked, wanted)

    def _make(self, asked: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        shape = asked["shape"]
        group = _Group(name=new_agent_id(), pool=asked["pool"], size=asked["size"], shape=shape)
        bundle = {"CPU": shape["cpus"], "GPU": shape["gpus"], "memory": shape["memory_bytes"]}
        bundles = [{k: v for k, v in bundle.items() if v}] * group.size
        name = group_of(self._lineage, group.name, group.pool)
        placed = self._cluster.make_group(name, bundles, is_apart=group.size > 1)
        environment = asked["runtime_env"]
        for place, agent_id in enumerate(group.agents):
            new = NewNode(
                agent_id=agent_id, group=name, place=place, members=group.agents, shape=shape, environment=environment
            )
            actor = self._cluster.make_node(new, placed)
            node = self._nodes[agent_id] = _Node(agent_id, group, actor, is_found=False, at=self._now())
            node.order = _order_for(node, wanted)
            self._ask(node, "serve", node.order)

    def _forget(self, node: _Node, why: str) -> None:
        """It is gone, or will not come; ``why`` where nobody wanted that."""
        del self._nodes[node.agent_id]
        if why and not node.is_to_end:
            self._lost.append({"agent": node.agent_id, "reason": why})
            if node.state["revision"] < 0:  # it never ran: the next one may fail alike
                self._back_off(node)
        self._remove_if_empty(node.group)
        self._cluster.end_node(node.actor)

    def _back_off(self, node: _Node) -> None:
        """Longer than the last time where the node was asked for after that: of those that were asked for together,
        one failure says as much as all."""
        pool, now = node.group.pool, self._now()
        before = self._backoffs.get(pool)
        if before is not None and node.at <= before.since:
            return
        pause_s = BACKOFF_S if before is None else min(BACKOFF_LIMIT_S, 2 * before.pause_s)
        if len(self._backoffs) >= BACKOFFS_KEPT:
            del self._backoffs[next(iter(self._backoffs))]
        self._backoffs[pool] = _Backoff(pause_s=pause_s, since=now, until=now + pause_s)

    def _remove_if_empty(self, group: _Group) -> None:
        """The placement group goes with its last node."""
        if not self._nodes.keys() & set(group.agents):
            self._cluster.remove_group(group_of(self._lineage, group.name, group.pool))

    # ── saying ──────────────────────────────────────────────────────────────────────────────────
    def _told(self, node: _Node, group: Mapping[str, Any]) -> dict[str, Any]:
        phase, reason = str(node.state["phase"]), str(node.state.get("reason") or node.state.get("blind") or "")
        if phase == "starting" and group.get("state") in WITHOUT_PLACE:
            said = str(group.get("stats", {}).get("scheduling_state", ""))
            phase, reason = "pending", f"{said}: {_WHY_PENDING[said]}" if said in _WHY_PENDING else said
        elif phase == "starting":
            reason = reason or "Ray starts its actor"
        return {
            "agent": node.agent_id,
            "group": node.group.name,
            "pool": node.group.pool,
            "size": node.group.size,
            "shape": dict(node.group.shape),
            "phase": phase,
            "reason": reason,
            "draining": node.state.get("draining", 0.0),
            "host": node.state.get("host", ""),
            "ray_node": group.get("bundles_to_node_id", {}).get(node.place, ""),
        }


def _order_for(node: _Node, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """With what that node has, and the token of its one agent."""
    shape = node.group.shape
    own = {"cpus": shape["cpus"], "memory_bytes": shape["memory_bytes"], "pool": node.group.pool}
    return {**wanted["order"], **own, "token": secret_of(wanted["key"], node.agent_id)}
