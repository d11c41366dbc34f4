"""Ray, as the bridge asks it. Imports Ray."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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
from tuner_service.executors.ray.cluster import GONE, NewNode, NodeAwayError, NodeGoneError
from tuner_service.executors.ray.compiled import compiled
from tuner_service.executors.ray.names import name_in, namespace_of
from tuner_service.executors.ray.warming import Warming

CALL_TIMEOUT_S = 10.0  # for the answer of an actor, once it is there, to be fetched
CONCURRENCY = 8  # calls of one actor: a question that waits must not keep an order out
# A worker of Ray's that loses its raylet kills its children at once: the keeper would end nothing, and trials run on.
LET_CHILDREN_END = {"RAY_kill_child_processes_on_worker_exit": "false"}


class RayDriver:
    """``start``: ``address``, ``lineage``, ``runtime_env``, ``modules``, as the first frame says."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._start, self._lineage = start, str(start.get("lineage"))
        self._warming = Warming(imported)
        self._actor_class = ray.remote(RayNode)

    def connect(self) -> None:
        """Whatever Ray raises."""
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
        self._warming.look(wait=not self._has_own_groups())

    def _has_own_groups(self) -> bool:
        return any(
            table["state"] not in GONE and name_in(self._lineage, str(table.get("name"))) is not None
            for table in self.groups()
        )

    # ── placement groups ────────────────────────────────────────────────────────────────────────
    def groups(self) -> Iterable[Mapping[str, Any]]:
        tables: Iterable[Mapping[str, Any]] = placement_group_table().values()
        return tables

    def make_group(self, name: str, bundles: Sequence[Mapping[str, float]], *, is_apart: bool) -> Any:
        strategy = "STRICT_SPREAD" if is_apart else "PACK"
        return placement_group([dict(one) for one in bundles], strategy=strategy, name=name, lifetime="detached")

    def remove_group(self, name: str) -> None:
        with suppress(ValueError):  # there is none
            remove_placement_group(get_placement_group(name))

    # ── actors ──────────────────────────────────────────────────────────────────────────────────
    def make_node(self, node: NewNode, group: Any) -> Any:
        shape = node.shape
        options: dict[str, Any] = {"memory": shape["memory_bytes"]} if shape["memory_bytes"] else {}
        options |= {"runtime_env": dict(node.environment)} if node.environment else {}
        return self._actor_class.options(
            name=node.agent_id,
            lifetime="detached",
            num_cpus=shape["cpus"],
            num_gpus=shape["gpus"],
            max_restarts=0,
            max_concurrency=CONCURRENCY,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node.place),
            **options,
        ).remote(node.agent_id, node.group, list(node.members))

    def find_node(self, agent_id: str) -> Any | None:
        with suppress(ValueError):
            return ray.get_actor(agent_id)
        return None

    def end_node(self, node: Any) -> None:
        with suppress(Exception):  # it has gone already
            ray.kill(node)

    def ask(self, node: Any, what: str, *arguments: Any) -> Any:
        return getattr(node, what).remote(*arguments)

    def has_answered(self, question: Any) -> bool:
        return bool(ray.wait([question], timeout=0)[0])

    def answer(self, question: Any) -> Any:
        try:
            return ray.get(question, timeout=CALL_TIMEOUT_S)
        except (ActorUnavailableError, GetTimeoutError) as exc:
            raise NodeAwayError(_sentence(exc)) from exc
        except RayError as exc:
            raise NodeGoneError(_sentence(exc)) from exc

    # ── the cluster ─────────────────────────────────────────────────────────────────────────────
    def facts(self) -> dict[str, Any]:
        self._warming.look()
        return {
            "address": ray.util.get_node_ip_address() if not ray.util.client.ray.is_connected() else "",
            "resources": {k: v for k, v in ray.cluster_resources().items() if k in {"CPU", "GPU", "memory"}},
        }


def _sentence(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(exc).__name__
