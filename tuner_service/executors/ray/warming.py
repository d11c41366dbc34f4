"""Processes of Ray's that wait on the cluster with our runtime environment, as Ray itself has some without one.

The actor of a node takes such a process over, and need not wait until Python and Ray have started there.
A process that waits holds no core, and ends with the bridge; where Ray needs its place, it ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

NODES_MAX = 8  # of the cluster, on which one waits
LOOK_S = 5.0  # between two looks for nodes of the cluster that are new
WAIT_S = 3.0  # for the first ones, before people are told that the cluster is connected


def without(nodes: Iterable[Mapping[str, Any]], warmed: Collection[str]) -> list[str]:
    """Which of Ray's ``nodes`` are to have one, as there was none on them before."""
    able = [str(node["NodeID"]) for node in nodes if node["Alive"] and node["Resources"].get("CPU")]
    return [node for node in able if node not in warmed][: max(0, NODES_MAX - len(warmed))]


class Warming:
    """Needs a driver that is connected. ``task``: what such a process does first, which is to import what it needs."""

    def __init__(self, task: Callable[[], None]) -> None:
        self._task = task
        self._warmed: set[str] = set()
        self._looked_at = 0.0

    def look(self, *, wait: bool = False) -> None:
        """Returns at once unless it is to ``wait``."""
        if self._looked_at and time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        import ray

        lacking = without(ray.nodes(), self._warmed)
        self._warmed |= set(lacking)
        coming = [_sent(self._task, node) for node in lacking]
        if wait and coming:
            with suppress(ray.exceptions.RayError):
                ray.wait(coming, num_returns=len(coming), timeout=WAIT_S)


def _sent(task: Callable[[], None], node: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(task).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
