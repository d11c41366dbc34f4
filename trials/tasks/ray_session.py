"""Task groups on the nodes of a Ray cluster, without a service: a bundle and an actor for each node.

The nodes of a group are one placement group, kept apart (STRICT_SPREAD): each on another node of the cluster, or none
begins. An actor holds the runner of its node, and moves lines between it and the session. Both belong to the session's
driver: when that ends, however it does, Ray ends the actors, and runners end with their orders.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import trials
from trials.tasks.cluster import WorkspaceType
from trials.tasks.nodes import QUIT_TIMEOUT_S, started_runner
from trials.tasks.port import Event, Nodes, Order, Placed, Wanted
from trials.tasks.progress import GRACE_S
from trials.tasks.running import NodeStartError
from trials.tasks.session import GroupSession, variables
from trials.tasks.shares import VISIBLE
from trials.tasks.task_group import TaskGroup

START_TIMEOUT_S = 300.0  # for all nodes of a group: an autoscaler starts machines
HEAR_S = 20.0  # after which a question for events is answered without any
END_SLACK_S = 10.0  # beyond what a runner has to end, for its actor to say so
CALLS = 4  # of one actor at a time: a question for events waits while orders are taken
CPUS = 1  # of a node that asks for none


class RaySession(GroupSession):
    """Runs groups on a Ray cluster: ``address`` as ``ray.init`` takes it; a driver that is connected already is used.

    ``runtime_env`` is Ray's, where this session connects: ``{"working_dir": "."}`` sends the program along, which is
    needed where nodes do not see its folder. ``folder`` is on every node; without it there is a temporary one there,
    for PRIVATE workspaces only. Labels that nodes ask for are those of Ray's nodes. ``autoscaling``: nodes may come
    that the cluster has not yet, so that nothing is refused for lack of them. ImportError without Ray.
    """

    kind = "Ray session"

    def __init__(  # noqa: PLR0913  # each may be left out
        self,
        address: str = "auto",
        *,
        folder: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        autoscaling: bool = False,
        grace_s: float = GRACE_S,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(folder, grace_s=grace_s, start_timeout_s=start_timeout_s)
        _require_ray()
        self._address, self._autoscaling = address, autoscaling
        self._environment, self._runtime_env = variables(environment), dict(runtime_env or {})

    def nodes(self, group: TaskGroup, *, workspace: Path | None) -> Nodes:  # noqa: ARG002  all groups alike
        self._connect()
        return RayNodes(
            self._folder,
            environment=self._environment,
            workspace=workspace,
            works_in="" if "working_dir" in self._runtime_env else str(Path.cwd()),
            autoscaling=self._autoscaling,
        )

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():
            return
        environment = dict(self._runtime_env)
        own = str(Path(trials.__file__).resolve().parent)
        environment["py_modules"] = [*environment.get("py_modules", ()), own]
        ray.init(address=self._address, runtime_env=environment, logging_level="warning")


class TaskNode:
    """The actor of a node: methods are called by the session. Orders are numbered, for calls may overtake others."""

    def __init__(self, folder: str, works_in: str) -> None:
        if works_in and Path(works_in).is_dir():
            os.chdir(works_in)  # as tasks on the session's own machine
        self._lines, self._process = started_runner(Path(folder) if folder else None, environment=os.environ)
        self._told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ordering = threading.Lock()
        self._early: dict[int, Order] = {}  # orders that have overtaken others
        self._next = 0
        threading.Thread(target=self._listen, name="events", daemon=True).start()

    def address(self) -> str:
        """Where the other nodes of the cluster reach this one."""
        import ray

        return str(ray.util.get_node_ip_address())

    def order(self, number: int, order: Order) -> None:
        """Passed on in the order of their numbers, without waiting for one that is late."""
        with self._ordering:
            self._early[number] = order
            while self._next in self._early:
                self._lines.order(self._early.pop(self._next))
                self._next += 1
            self._lines.pass_on(None)

    def events(self) -> list[Event]:
        """What the runner has said since; waits a while for something."""
        found: list[Event] = []
        with suppress(queue.Empty):
            found.append(self._told.get(timeout=HEAR_S))
            while True:
                found.append(self._told.get_nowait())
        return found

    def close(self) -> None:
        """Nothing of the node runs when this returns."""
        self._lines.close_orders()
        try:
            self._process.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children die with it
            self._process.wait()

    def _listen(self) -> None:
        while (found := self._lines.read()) is not None:
            for event in found:
                self._told.put(event)
        self._told.put({"event": "lost", "why": f"it ended with {self._process.wait()}"})


class _Held:
    """An actor as the session sees it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.found: Any = actor.address.remote()  # asked first: an answer says that the actor is there
        self.heard: Any = None
        self.address = ""
        self.is_lost = False
        self._ordered = 0

    def order(self, order: Order) -> None:
        if not self.is_lost:
            self.actor.order.remote(self._ordered, dict(order))
            self._ordered += 1

    def waits_for(self) -> Any:
        """The answer that comes next."""
        if self.found is None and self.heard is None:
            self.heard = self.actor.events.remote()
        return self.heard if self.found is None else self.found

    def read(self) -> list[Event]:
        """What the answer says that has come."""
        import ray

        try:
            if self.found is not None:
                self.address, self.found = str(ray.get(self.found)), None
                return []
            heard, self.heard = self.heard, None
            events: list[Event] = ray.get(heard)
        except ray.exceptions.RayError as error:
            events = [{"event": "lost", "why": _sentence(error)}]
        self.is_lost = any(event["event"] == "lost" for event in events)
        return events


class RayNodes:
    """The nodes of one run of one group: a placement group, and an actor in each bundle."""

    def __init__(
        self,
        folder: Path | None,
        *,
        environment: Mapping[str, str],
        works_in: str,
        autoscaling: bool,
        workspace: Path | None = None,
    ) -> None:
        self._folder, self._environment, self._workspace = folder, dict(environment), workspace
        self._works_in, self._autoscaling = works_in, autoscaling
        self._group: Any = None
        self._nodes: dict[str, _Held] = {}

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Each of them on another node of the cluster, as it is when nothing runs there."""
        import ray

        if self._autoscaling:
            return
        free = [node for node in ray.nodes() if node["Alive"]]
        for one in sorted(wanted, key=lambda one: -sum(_bundle(one).values())):
            fitting = [node for node in free if _fits(one, node)]
            if not fitting:
                asked = ", ".join(f"{count:g} {name}" for name, count in _bundle(one).items())
                labels = "".join(f", label {k}={v!r}" for k, v in one.properties.get("labels", {}).items())
                raise ValueError(
                    f"node {one.name!r} wants {asked}{labels}, and no further node of the cluster has that"
                )
            free.remove(min(fitting, key=lambda node: node["Resources"].get("CPU", 0)))

    def start(self, wanted: Sequence[Wanted], workspace_type: WorkspaceType) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        labels = [dict(one.properties.get("labels", {})) for one in wanted]
        selectors = {"bundle_label_selector": labels} if any(labels) else {}
        try:
            self._group = placement_group([_bundle(one) for one in wanted], strategy="STRICT_SPREAD", **selectors)
        except (ValueError, ray.exceptions.RayError) as error:
            raise NodeStartError(f"no node begins: {_sentence(error)}") from error
        for place, one in enumerate(wanted):
            bundle = _bundle(one)
            strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
            actor = (
                ray.remote(TaskNode)
                .options(
                    num_cpus=bundle["CPU"],
                    num_gpus=bundle.get("GPU", 0),
                    memory=bundle.get("memory"),
                    max_concurrency=CALLS,
                    scheduling_strategy=strategy,
                )
                .remote("" if self._folder is None else str(self._folder), self._works_in)
            )
            self._nodes[one.name] = _Held(actor)
            hidden = {VISIBLE: ""} if one.properties.get("gpus") == 0 else {}
            placed = Placed(
                workspace_type=workspace_type, workspace=self._workspace, environment={**self._environment, **hidden}
            )
            self.order(one.name, placed.order(one))

    def address(self, node: str) -> str:
        return self._nodes[node].address

    def order(self, node: str, order: Order) -> None:
        self._nodes[node].order(order)

    def events(self, timeout_s: float | None) -> list[tuple[str, Event]]:
        import ray

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        found: list[tuple[str, Event]] = []
        while not found:
            waiting = {held.waits_for(): name for name, held in self._nodes.items() if not held.is_lost}
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not waiting:
                break
            ready, _ = ray.wait(list(waiting), timeout=left)
            if not ready and left is not None:
                break
            for ref in ready:
                name = waiting[ref]
                found += [(name, event) for event in self._nodes[name].read()]
        return found

    def close(self, result: Mapping[str, Any]) -> None:  # noqa: ARG002  nobody else waits for it
        import ray
        from ray.util.placement_group import remove_placement_group

        with ExitStack() as closing:  # the group goes, too, where a call before it fails or is interrupted
            if self._group is not None:
                closing.callback(remove_placement_group, self._group)
                self._group = None
            for held in self._nodes.values():
                closing.callback(ray.kill, held.actor)
            living = [held.actor for held in self._nodes.values() if not held.is_lost and held.found is None]
            self._nodes.clear()
            closed = [actor.close.remote() for actor in living]
            if closed:
                ray.wait(closed, num_returns=len(closed), timeout=QUIT_TIMEOUT_S + END_SLACK_S)


def _bundle(wanted: Wanted) -> dict[str, float]:
    """What a node asks for, as Ray counts it."""
    asked = wanted.properties
    given = {"CPU": asked.get("cpus", CPUS), "GPU": asked.get("gpus", 0), "memory": asked.get("memory", 0)}
    return {name: count for name, count in given.items() if count}


def _fits(wanted: Wanted, node: Mapping[str, Any]) -> bool:
    has = node["Resources"]
    labels = node.get("Labels", {})
    return all(has.get(name, 0) >= count for name, count in _bundle(wanted).items()) and all(
        labels.get(name) == value for name, value in wanted.properties.get("labels", {}).items()
    )


def _require_ray() -> None:
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise ImportError("a Ray session needs Ray: pip install 'tuner-service[ray]'") from error


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(error).__name__
