"""Nodes that are wanted against those that exist on the cluster.

A node is a detached placement group of one bundle with a detached actor in it, both named after the agent that the
actor holds. Nodes for trials of several are one such group of as many bundles, each on another machine. What is not
found again complete is removed, and counts as lost: making another costs less than doubt.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trials.agent.ray_node import RayNode, imported
from tuner_service.executors.ray.compiled import compiled
from tuner_service.executors.ray.names import agents_of, group_of, name_in, namespace_of, new_agent_id
from tuner_service.executors.ray.warming import Warming
from tuner_service.service.node_tokens import secret_of

BACKOFF_S = 1.0  # after a node that never ran; doubled by each such in a row
BACKOFF_LIMIT_S = 60.0
BACKOFFS_KEPT = 200  # of pools that cannot be made
CALL_TIMEOUT_S = 10.0  # for an actor to take an order
AT_ONCE = 16  # nodes that are asked for in one step
LOST_KEPT = 20  # of those that were lost, for people
CONCURRENCY = 8  # calls of one actor: a question that waits must not keep an order out
# A worker of Ray's that loses its raylet kills its children at once: the keeper would end nothing, and trials run on.
LET_CHILDREN_END = {"RAY_kill_child_processes_on_worker_exit": "false"}
GONE = frozenset({"REMOVED"})
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
    """``until``: when the next node may be asked for."""

    pause_s: float
    until: float


class _Node:
    """One that this bridge knows to exist."""

    def __init__(self, agent_id: str, group: _Group, actor: Any) -> None:
        self.agent_id, self.group, self.actor = agent_id, group, actor
        self.order: dict[str, Any] = {}  # that it was told last
        self.ended = False  # whether it was told to end
        self.state: dict[str, Any] = {"phase": "starting", "revision": -1}
        self.watch: Any = None
        self.serving: Any = None
        self.retry_at = 0.0

    @property
    def place(self) -> int:
        """Of its bundle."""
        return self.group.agents.index(self.agent_id)


class Reconciler:
    """``start``: ``address``, ``lineage``, ``runtime_env``, ``modules``, as the first frame says."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._start, self._lineage = start, str(start.get("lineage"))
        self._nodes: dict[str, _Node] = {}
        self._lost: deque[dict[str, str]] = deque(maxlen=LOST_KEPT)
        self._backoffs: dict[str, _Backoff] = {}  # by pool: one that cannot be made costs no other
        self._wanted: dict[str, Any] | None = None
        self._warming = Warming(imported)
        self._actor_class = ray.remote(RayNode)

    def connect(self) -> None:
        environment = dict(self._start.get("runtime_env") or {})
        environment["env_vars"] = {**environment.get("env_vars", {}), **LET_CHILDREN_END}
        modules = compiled(self._start["modules"], into=Path("modules"))
        environment["py_modules"] = [*environment.get("py_modules", ()), *modules]
        # Workers of Ray are nobody's training: they need no threads of their own for it.
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        ray.init(
            address=self._start["address"],
            namespace=namespace_of(self._lineage),
            runtime_env=environment,
            log_to_driver=False,
            logging_level="warning",
        )
        self._warming.look(wait=not self._groups())

    def step(self, wanted: dict[str, Any] | None) -> dict[str, Any]:
        """Come nearer to what is wanted, and say what exists. ``wanted`` None: as before."""
        self._wanted = wanted or self._wanted
        groups = self._groups()
        self._find_again(groups)
        self._hear(groups)
        if self._wanted is not None:
            self._give_orders(self._wanted)
            self._make_lacking(self._wanted)
        self._warming.look()
        return {
            "items": [self._told(node, groups.get(node.group.name, {})) for node in self._nodes.values()],
            "lost": list(self._lost),
            "address": ray.util.get_node_ip_address() if not ray.util.client.ray.is_connected() else "",
            "resources": {k: v for k, v in ray.cluster_resources().items() if k in {"CPU", "GPU", "memory"}},
        }

    def let_go(self) -> None:
        """Nobody waits any more for what has no place yet: a later bridge asks for what is needed then."""
        groups = self._groups()
        self._find_again(groups)
        for node in list(self._nodes.values()):
            if groups.get(node.group.name, {}).get("state") == "PENDING":
                self._forget(node, "")

    # ── looking ─────────────────────────────────────────────────────────────────────────────────
    def _groups(self) -> dict[str, dict[str, Any]]:
        """The placement groups of this database, by name."""
        found = {}
        for table in placement_group_table().values():
            own = name_in(self._lineage, str(table.get("name")))
            if own is not None and table["state"] not in GONE:
                found[own[0]] = {**table, "pool": own[1]}
        return found

    def _find_again(self, groups: Mapping[str, Any]) -> None:
        known = {node.group.name for node in self._nodes.values()}
        for name in groups.keys() - known:
            group = _Group.of(name, groups[name]["pool"], groups[name]["bundles"])
            for agent_id in group.agents:
                with suppress(ValueError):  # an earlier bridge came no further, or its actor has died
                    self._nodes[agent_id] = _Node(agent_id, group, ray.get_actor(agent_id))
            self._remove_if_empty(group)

    def _hear(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """What the actors say, and which of them have gone."""
        for node in list(self._nodes.values()):
            group = groups.get(node.group.name)
            if group is None:
                # Given back, by itself or by our order; or somebody removed it.
                self._forget(node, "" if node.state["phase"] in {"ending", "ended"} else "its placement group is gone")
            elif group["state"] == "RESCHEDULING" and node.group.size == 1:
                self._forget(node, "its node of the cluster died")
            else:
                self._hear_one(node)

    def _hear_one(self, node: _Node) -> None:
        if node.watch is None and time.monotonic() >= node.retry_at:
            node.watch = node.actor.watch.remote(node.state["revision"])
        for ref in [ref for ref in (node.serving, node.watch) if ref is not None]:
            if not ray.wait([ref], timeout=0)[0]:
                continue
            if ref is node.watch:
                node.watch = None
            else:
                node.serving = None
            try:
                node.state = ray.get(ref, timeout=CALL_TIMEOUT_S)
            except (ActorUnavailableError, GetTimeoutError) as exc:
                node.state = {**node.state, "reason": _sentence(exc)}
                node.retry_at = time.monotonic() + BACKOFF_S
            except RayError as exc:
                self._forget(node, _sentence(exc))
                return
            else:
                if node.state["phase"] == "running":
                    self._backoffs.pop(node.group.pool, None)

    # ── acting ──────────────────────────────────────────────────────────────────────────────────
    def _give_orders(self, wanted: Mapping[str, Any]) -> None:
        for node in list(self._nodes.values()):
            order = _order_for(node, wanted)
            if node.order != order and node.serving is None:
                node.order = order
                node.serving = node.actor.serve.remote(node.order)
            grace_s = wanted["end"].get(node.agent_id)
            if grace_s is None or node.ended:
                continue
            node.ended = True
            if node.state["phase"] == "starting":  # nothing runs there
                self._forget(node, "")
            else:
                node.actor.end.remote(grace_s)

    def _make_lacking(self, wanted: Mapping[str, Any]) -> None:
        staying: dict[tuple[str, int], set[str]] = {}
        for node in self._nodes.values():
            if not node.ended and node.state["phase"] not in {"ending", "ended"}:
                staying.setdefault((node.group.pool, node.group.size), set()).add(node.group.name)
        for asked in wanted["wanted"]:
            count = asked["count"] - len(staying.get((asked["pool"], asked["size"]), ()))
            backoff = self._backoffs.get(asked["pool"])
            if asked["runtime_env"] is None or (backoff is not None and time.monotonic() < backoff.until):
                continue
            for _ in range(min(AT_ONCE, count)):
                self._make(asked, wanted)

    def _make(self, asked: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        shape = asked["shape"]
        group = _Group(name=new_agent_id(), pool=asked["pool"], size=asked["size"], shape=shape)
        bundle = {"CPU": shape["cpus"], "GPU": shape["gpus"], "memory": shape["memory_bytes"]}
        placed = placement_group(
            [{k: v for k, v in bundle.items() if v}] * group.size,
            strategy="STRICT_SPREAD" if group.size > 1 else "PACK",
            name=group_of(self._lineage, group.name, group.pool),
            lifetime="detached",
        )
        for place, agent_id in enumerate(group.agents):
            actor = self._make_actor(agent_id, group, placed, place, asked["runtime_env"])
            node = self._nodes[agent_id] = _Node(agent_id, group, actor)
            node.order = _order_for(node, wanted)
            node.serving = actor.serve.remote(node.order)

    def _make_actor(self, agent_id: str, group: _Group, placed: Any, place: int, environment: Mapping[str, Any]) -> Any:
        shape = group.shape
        options: dict[str, Any] = {"memory": shape["memory_bytes"]} if shape["memory_bytes"] else {}
        options |= {"runtime_env": dict(environment)} if environment else {}
        return self._actor_class.options(
            name=agent_id,
            lifetime="detached",
            num_cpus=shape["cpus"],
            num_gpus=shape["gpus"],
            max_restarts=0,
            max_concurrency=CONCURRENCY,
            scheduling_strategy=PlacementGroupSchedulingStrategy(placed, placement_group_bundle_index=place),
            **options,
        ).remote(agent_id, group_of(self._lineage, group.name, group.pool), group.agents)

    def _forget(self, node: _Node, why: str) -> None:
        """It is gone, or will not come; ``why`` where nobody wanted that."""
        del self._nodes[node.agent_id]
        if why and not node.ended:
            self._lost.append({"agent": node.agent_id, "reason": why})
            if node.state["revision"] < 0:  # it never ran: the next one may fail alike
                before = self._backoffs.get(node.group.pool)
                pause_s = BACKOFF_S if before is None else min(BACKOFF_LIMIT_S, 2 * before.pause_s)
                if len(self._backoffs) >= BACKOFFS_KEPT:
                    del self._backoffs[next(iter(self._backoffs))]
                self._backoffs[node.group.pool] = _Backoff(pause_s=pause_s, until=time.monotonic() + pause_s)
        self._remove_if_empty(node.group)
        with suppress(Exception):  # it has gone already
            ray.kill(node.actor)

    def _remove_if_empty(self, group: _Group) -> None:
        """The placement group goes with its last node."""
        if self._nodes.keys() & set(group.agents):
            return
        with suppress(ValueError):  # it is gone
            remove_placement_group(get_placement_group(group_of(self._lineage, group.name, group.pool)))

    # ── saying ──────────────────────────────────────────────────────────────────────────────────
    def _told(self, node: _Node, group: Mapping[str, Any]) -> dict[str, Any]:
        phase, reason = str(node.state["phase"]), str(node.state.get("reason") or node.state.get("blind") or "")
        if phase == "starting" and group.get("state") in {"PENDING", "PREPARED"}:
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


def _sentence(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(exc).__name__
