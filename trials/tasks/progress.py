"""What a group does next: a state machine without any I/O. Nodes do what it orders (``trials.tasks.port``)."""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trials.tasks.instance import ENV_GRACE, ENV_TASK
from trials.tasks.steps import Step, only_command, plan_of
from trials.tasks.task_group import ReportStep, Task, TaskGroup

GRACE_S = 10.0  # between SIGTERM and SIGKILL, where a session is told no other
Order = tuple[str, dict[str, Any]]  # (node, what its runner is told)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Ranks of one world: how many, and the first one of each task."""

    size: int
    first_rank: Mapping[str, int]
    first_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterWorld:
    """Of a group that so many machines run at once: the worlds of all are one, which MASTER_ADDR of this one names."""

    node: int
    nodes: int

    def ranks(self, rank: int, *, size: int, local: int) -> dict[str, str]:
        """``rank`` and ``size`` are those of this machine's part; where the first process listens is known."""
        return {
            "RANK": str(self.node * size + rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.nodes * size),
            "LOCAL_WORLD_SIZE": str(size),
        }


def worlds_of(tasks: Iterable[Task]) -> dict[str, World]:
    """By name; ranks follow the order in which the tasks were made."""
    members: dict[str, list[Task]] = {}
    for task in tasks:
        if task.has_instances:
            members.setdefault(task.world, []).append(task)
    worlds = {}
    for name, found in members.items():
        first_rank, size = {}, 0
        for task in found:
            first_rank[task.name] = size
            size += task.num_instances
        worlds[name] = World(size=size, first_rank=first_rank, first_node=found[0].node)
    return worlds


def ports_wanted(group: TaskGroup) -> Counter[str]:
    """By node: one for each world whose first process is there."""
    return Counter(world.first_node for world in worlds_of(group.tasks).values())


class Progress:
    """Of one group. Jobs are named by what they are for, such as ``task:node0/train``."""

    def __init__(
        self,
        group: TaskGroup,
        *,
        addresses: Mapping[str, str],
        ports: Mapping[str, Sequence[int]],
        outer: OuterWorld | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        """``addresses`` of all nodes, and on each at least as many ``ports`` as ``ports_wanted`` says."""
        self._group = group
        self._nodes = group.nodes()
        self._addresses = addresses
        self._free_ports = {node: list(found) for node, found in ports.items()}
        self._outer = outer
        self._grace = {ENV_GRACE: f"{grace_s:g}"}
        self._tasks = {task.name: task for task in group.tasks}
        self._worlds = worlds_of(group.tasks)
        self._ports: dict[str, int] = {}
        self._running: set[str] = set()
        self._done: set[str] = set()  # tasks
        self._begun: set[str] = set()  # tasks
        self._set_up: set[str] = set()  # "node:NAME" and "task:NAME" whose setup steps have ended, exit steps not
        self._nodes_waiting = set(self._nodes)  # for their setup steps
        self._nodes_reporting: set[str] = set()
        self._nodes_done: set[str] = set()
        self._first_node = self._nodes[0]
        self._is_group_done = False

    def is_done(self) -> bool:
        return self._is_group_done

    def waits_for(self) -> str:
        """For people: what runs."""
        return ", ".join(map(self._with_node, sorted(self._running))) or "nothing"

    def _with_node(self, job: str) -> str:
        kind, _, name = job.partition(":")
        if kind in {"task", "task_setup", "task_exit", "task_report"}:  # whose names say it
            return self.describe(job, None)
        return f"{self.describe(job, None)} on node {(name.rpartition('#')[0] if kind == 'report' else name)!r}"

    def describe(self, job: str, instance: int | None) -> str:
        """For people: which part of the group a job is."""
        kind, _, name = job.partition(":")
        if kind == "task" and instance is not None and self._tasks[name].num_instances > 1:
            return f"instance {instance} of task {name!r}"
        kinds = {
            "group_setup": "a setup step of the group",
            "group_exit": "an exit step of the group",
            "node_setup": "a setup step",
            "node_exit": "an exit step",
            "task_setup": f"a setup step of task {name!r}",
            "task_exit": f"an exit step of task {name!r}",
            "report": "a report step",
            "task_report": f"a report step of task {name.rpartition('#')[0]!r}",
        }
        return kinds.get(kind, f"task {name!r}")

    # ── the way of a group ──────────────────────────────────────────────────────────────────────
    def begin(self) -> list[Order]:
        """All nodes are ready: setup steps first, the group's, then the nodes'; tasks start when all have ended."""
        steps = [step for setup in self._group.group_setups for step in setup.before]
        if steps:
            return [self._job(f"group_setup:{self._first_node}", self._first_node, steps)]
        return self._group_set_up()

    def _group_set_up(self) -> list[Order]:
        self._set_up.add("group")
        orders: list[Order] = []
        for node in self._nodes:
            steps = [step for setup in self._group.setups_of(node) for step in setup.before]
            if steps:
                orders.append(self._job(f"node_setup:{node}", node, steps))
        if not orders:
            return self._all_set_up()
        self._nodes_waiting = {node for node, _ in orders}
        self._set_up |= {f"node:{node}" for node in self._nodes if node not in self._nodes_waiting}
        return orders

    def ended(self, job: str) -> list[Order]:
        """A job has ended well: what is to be done now."""
        self._running.discard(job)
        kind, _, name = job.partition(":")
        match kind:
            case "group_setup":
                return self._group_set_up()
            case "group_exit":
                self._is_group_done = True
                return []
            case "task_report":
                return self._task_reports_ended(self._tasks[name.rpartition("#")[0]])
            case "node_setup":
                self._set_up.add(f"node:{name}")
                self._nodes_waiting.discard(name)
                return [] if self._nodes_waiting else self._all_set_up()
            case "task_setup":
                self._set_up.add(f"task:{name}")
                return self._set_up_done(self._tasks[name])
            case "task":
                return self._instances_ended(self._tasks[name])
            case "task_exit":
                return self._task_done(name)
            case "report":
                return self._reports_ended(name.rpartition("#")[0])
            case _:
                return self._node_done(name)

    def exit_orders(self) -> Sequence[list[Order]]:
        """After a failure: exit steps of the tasks that had been set up, then those of the nodes."""
        self._running.clear()
        of_group = [] if "group" not in self._set_up else self._group_exit_orders()
        tasks = [task for task in self._tasks.values() if f"task:{task.name}" in self._set_up]
        nodes = [node for node in self._nodes if f"node:{node}" in self._set_up]
        self._set_up.clear()
        of_tasks = [self._job(f"task_exit:{t.name}", t.node, t.setup.after, task=t) for t in tasks if t.setup.after]
        of_nodes = [
            self._job(f"node_exit:{node}", node, steps) for node in nodes if (steps := self._exit_steps_of(node))
        ]
        return [orders for orders in (of_tasks, of_nodes, of_group) if orders]

    def _all_set_up(self) -> list[Order]:
        self._nodes_waiting = set()
        self._set_up |= {f"node:{node}" for node in self._nodes}
        orders = [order for node in self._nodes for order in self._reports(node)]
        return orders + self._start_tasks()

    def _start_tasks(self) -> list[Order]:
        """Those that have not begun and wait for nothing. With nothing to run they have ended at once."""
        orders: list[Order] = []
        for task in self._tasks.values():
            if task.name in self._begun or any(other.name not in self._done for other in task.after):
                continue
            self._begun.add(task.name)
            if task.setup.before:
                orders.append(self._job(f"task_setup:{task.name}", task.node, task.setup.before, task=task))
            else:
                self._set_up.add(f"task:{task.name}")
                orders += self._set_up_done(task)
        return orders

    def _set_up_done(self, task: Task) -> list[Order]:
        if not task.has_instances:
            return self._task_exit(task)
        return [self._instances(task), *self._task_reports(task)]

    def _instances_ended(self, task: Task) -> list[Order]:
        reports = self._reports_beside(task)
        if reports:
            return [(task.node, {"do": "end", "job": job}) for job in reports]
        return self._task_exit(task)

    def _task_reports_ended(self, task: Task) -> list[Order]:
        is_over = not self._reports_beside(task) and f"task:{task.name}" not in self._running
        return self._task_exit(task) if is_over else []

    def _reports_beside(self, task: Task) -> list[str]:
        return sorted(job for job in self._running if job.startswith(f"task_report:{task.name}#"))

    def _task_exit(self, task: Task) -> list[Order]:
        self._set_up.discard(f"task:{task.name}")
        if task.setup.after:
            return [self._job(f"task_exit:{task.name}", task.node, task.setup.after, task=task)]
        return self._task_done(task.name)

    def _task_done(self, name: str) -> list[Order]:
        self._done.add(name)
        node = self._tasks[name].node
        orders = self._start_tasks()
        if all(task.name in self._done for task in self._tasks.values() if task.node == node):
            orders += self._tasks_of_node_done(node)
        return orders

    def _tasks_of_node_done(self, node: str) -> list[Order]:
        if node in self._nodes_reporting or node in self._nodes_done:
            return []  # a task without a step was the last, and has said so
        self._nodes_reporting.add(node)
        reports = [job for job in self._running if job.startswith(f"report:{node}#")]
        if reports:
            return [(node, {"do": "end", "job": job}) for job in sorted(reports)]
        return self._node_exit(node)

    def _reports_ended(self, node: str) -> list[Order]:
        if node not in self._nodes_reporting:
            return []  # one has ended by itself, and the node's tasks run
        return [] if any(job.startswith(f"report:{node}#") for job in self._running) else self._node_exit(node)

    def _node_exit(self, node: str) -> list[Order]:
        self._set_up.discard(f"node:{node}")
        steps = self._exit_steps_of(node)
        if steps:
            return [self._job(f"node_exit:{node}", node, steps)]
        return self._node_done(node)

    def _node_done(self, node: str) -> list[Order]:
        self._nodes_done.add(node)
        if self._nodes_done != set(self._nodes):
            return []
        self._set_up.discard("group")
        orders = self._group_exit_orders()
        self._is_group_done = not orders
        return orders

    def _group_exit_orders(self) -> list[Order]:
        steps = [step for setup in self._group.group_setups for step in setup.after]
        return [self._job(f"group_exit:{self._first_node}", self._first_node, steps)] if steps else []

    def _exit_steps_of(self, node: str) -> list[Step]:
        return [step for setup in self._group.setups_of(node) for step in setup.after]

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────
    def _reports(self, node: str) -> list[Order]:
        return [
            self._job(f"report:{node}#{index}", node, [report.step], report=report)
            for index, report in enumerate(self._group.reports)
            if report.node in {None, node}
        ]

    def _task_reports(self, task: Task) -> list[Order]:
        orders: list[Order] = []
        for index, report in enumerate(task.reports):
            job = f"task_report:{task.name}#{index}"
            self._running.add(job)
            what = self._what([report.step], what=f"a report step of task {task.name!r}", repeated=True)
            own = {ENV_TASK: task.name}
            count = task.num_instances if report.per_instance else 1
            ranks = [self._ranks(task, at) if report.per_instance else {} for at in range(count)]
            order = self._run(job, what, [own | rank for rank in ranks]) | {"interval_ms": report.interval_ms}
            orders.append((task.node, order))
        return orders

    def _job(
        self, job: str, node: str, steps: Sequence[Step], *, task: Task | None = None, report: ReportStep | None = None
    ) -> Order:
        self._running.add(job)
        what = self._what(steps, what=job, repeated=report is not None)
        order = self._run(job, what, [{ENV_TASK: "" if task is None else task.name}])
        return node, order | ({} if report is None else {"interval_ms": report.interval_ms})

    def _instances(self, task: Task) -> Order:
        job = f"task:{task.name}"
        self._running.add(job)
        own = [] if task.step is None else [task.step]
        steps = [*task.instance_setup.before, *own, *task.instance_setup.after]
        what = self._what(steps, what=f"task {task.name!r}", repeated=False)
        environments = [{ENV_TASK: task.name} | self._ranks(task, index) for index in range(task.num_instances)]
        return task.node, self._run(job, what, environments)

    @staticmethod
    def _what(steps: Sequence[Step], *, what: str, repeated: bool) -> tuple[list[str] | None, str]:
        """A command, or else a plan as text."""
        plan = plan_of(steps, what=what)
        direct = None if repeated else only_command(plan)
        if direct is not None:
            return list(direct), ""
        return None, base64.b64encode(pickle.dumps(plan)).decode()

    def _run(
        self, job: str, what: tuple[list[str] | None, str], environments: Iterable[Mapping[str, str]]
    ) -> dict[str, Any]:
        command, plan = what
        instances = [{"command": command, "environment": self._grace | dict(own)} for own in environments]
        return {"do": "run", "job": job, "instances": instances} | ({"plan": plan} if plan else {})

    def _ranks(self, task: Task, index: int) -> dict[str, str]:
        world = self._worlds[task.world]
        if self._outer is not None:
            return self._outer.ranks(world.first_rank[task.name] + index, size=world.size, local=index)
        return {
            "RANK": str(world.first_rank[task.name] + index),
            "LOCAL_RANK": str(index),
            "WORLD_SIZE": str(world.size),
            "LOCAL_WORLD_SIZE": str(task.num_instances),
            "MASTER_ADDR": self._addresses[world.first_node],
            "MASTER_PORT": str(self._port(task.world)),
        }

    def _port(self, world: str) -> int:
        """Chosen when the first task of the world starts."""
        if world not in self._ports:
            self._ports[world] = self._free_ports[self._worlds[world].first_node].pop()
        return self._ports[world]
