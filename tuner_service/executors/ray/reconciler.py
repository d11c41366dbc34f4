"""Nodes that are wanted against those that exist on the cluster.

A node is a detached placement group of one bundle with a detached actor in it, both named after the agent that the
actor holds. What is not found again complete is removed, and counts as lost: making another costs less than doubt.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
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

from trials.agent.ray_node import RayNode
from tuner_service.executors.ray.names import agent_of, group_of, namespace_of, new_agent_id
from tuner_service.service.node_tokens import secret_of

BACKOFF_S = 1.0  # after a node that never ran; doubled by each such in a row
BACKOFF_LIMIT_S = 60.0
CALL_TIMEOUT_S = 10.0  # for an actor to take an order
AT_ONCE = 16  # nodes that are asked for in one step
LOST_KEPT = 20  # of those that were lost, for people
CONCURRENCY = 8  # calls of one actor: a question that waits must not keep an order out
GONE = frozenset({"REMOVED"})
_WHY_PENDING = {
    "INFEASIBLE": "no node of the cluster is large enough; an autoscaler may bring one",
    "NO_RESOURCES": "the cluster has no room now; an autoscaler may bring some",
    "QUEUED": "waits in Ray's queue",
    "PENDING": "Ray is looking for a node",
}


class _Node:
    """One that this bridge knows to exist."""

    def __init__(self, agent_id: str, actor: Any) -> None:
        self.agent_id, self.actor = agent_id, actor
        self.order: dict[str, Any] = {}  # that it was told last
        self.ended = False  # whether it was told to end
        self.state: dict[str, Any] = {"phase": "starting", "revision": -1}
        self.watch: Any = None
        self.serving: Any = None
        self.retry_at = 0.0


class Reconciler:
    """``start``: ``address``, ``lineage``, ``runtime_env``, ``modules``, as the first frame says."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._start, self._lineage = start, str(start.get("lineage"))
        self._nodes: dict[str, _Node] = {}
        self._lost: deque[dict[str, str]] = deque(maxlen=LOST_KEPT)
        self._backoff_s = self._make_after = 0.0
        self._wanted: dict[str, Any] | None = None

    def connect(self) -> None:
        environment = dict(self._start.get("runtime_env") or {})
        environment["py_modules"] = [*environment.get("py_modules", ()), *self._start["modules"]]
        # Workers of Ray are nobody's training: they need no threads of their own for it.
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        ray.init(
            address=self._start["address"],
            namespace=namespace_of(self._lineage),
            runtime_env=environment,
            log_to_driver=False,
            logging_level="warning",
        )

    def step(self, wanted: dict[str, Any] | None) -> dict[str, Any]:
        """Come nearer to what is wanted, and say what exists. ``wanted`` None: as before."""
        self._wanted = wanted or self._wanted
        groups = self._groups()
        self._find_again(groups)
        self._hear(groups)
        if self._wanted is not None:
            self._give_orders(self._wanted)
            self._make_or_cancel(self._wanted, groups)
        return {
            "items": [self._told(node, groups.get(node.agent_id, {})) for node in self._nodes.values()],
            "lost": list(self._lost),
            "address": ray.util.get_node_ip_address() if not ray.util.client.ray.is_connected() else "",
            "resources": {k: v for k, v in ray.cluster_resources().items() if k in {"CPU", "GPU", "memory"}},
        }

    # ── looking ─────────────────────────────────────────────────────────────────────────────────
    def _groups(self) -> dict[str, dict[str, Any]]:
        """The placement groups of this database, by agent."""
        found = {}
        for table in placement_group_table().values():
            agent_id = agent_of(self._lineage, str(table.get("name")))
            if agent_id is not None and table["state"] not in GONE:
                found[agent_id] = table
        return found

    def _find_again(self, groups: Mapping[str, Any]) -> None:
        for agent_id in groups.keys() - self._nodes.keys():
            try:
                actor = ray.get_actor(agent_id)
            except ValueError:
                self._remove(agent_id)  # an earlier bridge came no further, or its actor has died
                continue
            self._nodes[agent_id] = _Node(agent_id, actor)

    def _hear(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """What the actors say, and which of them have gone."""
        for node in list(self._nodes.values()):
            group = groups.get(node.agent_id)
            if group is None:
                # Given back, by itself or by our order; or somebody removed it.
                self._forget(node, "" if node.state["phase"] in {"ending", "ended"} else "its placement group is gone")
            elif group["state"] == "RESCHEDULING":
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
                    self._backoff_s = 0.0

    # ── acting ──────────────────────────────────────────────────────────────────────────────────
    def _give_orders(self, wanted: Mapping[str, Any]) -> None:
        for node in list(self._nodes.values()):
            order = _order_for(node.agent_id, wanted)
            if node.order != order and node.serving is None:
                node.order = order
                node.serving = node.actor.serve.remote(node.order)
            grace_s = wanted["end"].get(node.agent_id)
            if grace_s is None or node.ended:
                continue
            node.ended = True
            if node.state["phase"] == "starting":  # nothing runs there
                node.state = {**node.state, "phase": "ending"}
                self._remove(node.agent_id)
            else:
                node.actor.end.remote(grace_s)

    def _make_or_cancel(self, wanted: Mapping[str, Any], groups: Mapping[str, Any]) -> None:
        del groups
        count = sum(not node.ended and node.state["phase"] not in {"ending", "ended"} for node in self._nodes.values())
        if time.monotonic() < self._make_after:
            return
        for _ in range(min(AT_ONCE, wanted["wanted"] - count)):
            self._make(wanted)

    def _make(self, wanted: Mapping[str, Any]) -> None:
        agent_id, shape = new_agent_id(), wanted["shape"]
        group = group_of(self._lineage, agent_id)
        bundle = {"CPU": shape["cpus"], "GPU": shape["gpus"], "memory": shape["memory_bytes"]}
        placed = placement_group([{k: v for k, v in bundle.items() if v}], name=group, lifetime="detached")
        options: dict[str, Any] = {"memory": shape["memory_bytes"]} if shape["memory_bytes"] else {}
        actor = (
            ray.remote(RayNode)
            .options(
                name=agent_id,
                lifetime="detached",
                num_cpus=shape["cpus"],
                num_gpus=shape["gpus"],
                max_restarts=0,
                max_concurrency=CONCURRENCY,
                scheduling_strategy=PlacementGroupSchedulingStrategy(placed, placement_group_bundle_index=0),
                **options,
            )
            .remote(agent_id, group)
        )
        node = self._nodes[agent_id] = _Node(agent_id, actor)
        node.order = _order_for(agent_id, wanted)
        node.serving = actor.serve.remote(node.order)

    def _forget(self, node: _Node, why: str) -> None:
        """It is gone, or will not come; ``why`` where nobody wanted that."""
        del self._nodes[node.agent_id]
        if why and not node.ended:
            self._lost.append({"agent": node.agent_id, "reason": why})
            if node.state["revision"] < 0:  # it never ran: the next one may fail alike
                self._backoff_s = min(BACKOFF_LIMIT_S, max(BACKOFF_S, 2 * self._backoff_s))
                self._make_after = time.monotonic() + self._backoff_s
        self._remove(node.agent_id)
        with suppress(Exception):  # it has gone already
            ray.kill(node.actor)

    def _remove(self, agent_id: str) -> None:
        with suppress(ValueError):  # it is gone
            remove_placement_group(get_placement_group(group_of(self._lineage, agent_id)))

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
            "phase": phase,
            "reason": reason,
            "draining": node.state.get("draining", 0.0),
            "host": node.state.get("host", ""),
            "ray_node": next(iter(group.get("bundles_to_node_id", {}).values()), ""),
        }


def _order_for(agent_id: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """With the token of that one agent."""
    return {**wanted["order"], "token": secret_of(wanted["key"], agent_id)}


def _sentence(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(exc).__name__
