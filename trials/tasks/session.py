"""Running a group of tasks on this machine: every node a runner of its own, every instance a real process."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trials.tasks.cluster import WorkspaceType
from trials.tasks.instance import current_instance, read_output
from trials.tasks.nodes import LocalNode
from trials.tasks.progress import OuterWorld, Progress
from trials.tasks.shares import Share, shares_of
from trials.tasks.steps import NestedSteps
from trials.tasks.task_group import Task, TaskGroup

START_TIMEOUT_S = 60.0  # for all nodes of a group to be ready
EXIT_TIMEOUT_S = 60.0  # for the exit steps of a group that failed
STOP_SLACK_S = 15.0  # beyond the grace, for a node to say that nothing runs any more
GRACE_S = 10.0
NODES_LIMIT = 64  # of one local session
NODE_FOLDER_LIMIT = 200  # characters of a node's name that is a folder


class TaskFailedError(RuntimeError):
    """A task, a setup or exit step or a report step failed; everything else of its group was stopped.

    ``code`` is the exit code, a signal as its negative number, and None where nothing ran.
    """

    def __init__(self, what: str, node: str, why: str, *, code: int | None = None) -> None:
        super().__init__(f"{what} on node {node!r} failed: {why}; the other tasks of the group were stopped")
        self.what, self.node, self.why, self.code = what, node, why, code


class NodeStartError(RuntimeError):
    """Not all nodes of a group could be made ready, so none began."""


class LocalSession:
    """Runs groups one after the other; nodes are names, all of them here.

    ``folder`` holds the workspaces: NODE/global for GLOBAL ones, which later groups find again. Without it there is a
    temporary folder, for PRIVATE ones only. Output of tasks goes where this process's goes; they run in its working
    directory, with its environment and ``environment``. ``grace_s`` is between SIGTERM and SIGKILL when tasks are
    stopped. ``labels`` are what this machine is, for nodes that ask for some. ``outer``: this session is one of several
    that run the same group, each on a machine of its own, whose worlds are parts of one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        labels: Mapping[str, str] | None = None,
        outer: OuterWorld | None = None,
    ) -> None:
        self._outer = outer
        self._folder = None if folder is None else Path(folder).resolve()
        self._environment = dict(environment or {})
        self._grace_s = grace_s
        self._labels = dict(labels or {})

    def run(self, group: TaskGroup | Task, *, timeout_s: float | None = None) -> None:
        """Until every task has ended well; then the outputs can be fetched. A task outside any group is run alone.

        All nodes are made ready before any step begins. The first failure stops the rest, exit steps of what had been
        set up are run, and TaskFailedError says what failed. TimeoutError after ``timeout_s``, in the same way. No
        process of the group is left when this returns, nor when this process is killed.
        """
        group = _group_of(group)
        nodes = group.nodes()
        if not nodes:
            raise ValueError("the group has no task")
        if len(nodes) > NODES_LIMIT:
            raise ValueError(f"the group has {len(nodes)} nodes; a local session runs {NODES_LIMIT} at most")
        if group.workspace_type is WorkspaceType.GLOBAL and self._folder is None:
            raise ValueError("a GLOBAL workspace is kept for later groups: give the session a folder")
        shares_of({node: group.properties_of(node) for node in nodes}, self._labels)
        group.use()
        self.run_used(group, timeout_s=timeout_s)

    def run_used(self, group: TaskGroup, *, timeout_s: float | None = None, workspace: Path | None = None) -> None:
        """As ``run``, of a group that was checked and is used; ``workspace`` is that of its only node."""
        nodes = group.nodes()
        own = Path(tempfile.mkdtemp(prefix="tasks-"))
        try:
            self._run(group, nodes, own, None if timeout_s is None else time.monotonic() + timeout_s, workspace)
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def _run(
        self, group: TaskGroup, names: list[str], own: Path, deadline: float | None, workspace: Path | None
    ) -> None:
        nodes: dict[str, LocalNode] = {}
        shares = shares_of({name: group.properties_of(name) for name in names}, self._labels)
        try:
            for name in names:
                if workspace is None:
                    nodes[name] = self._node(group, name, own, shares[name])
                else:
                    nodes[name] = self._started(name, workspace, [own], shares[name])
            running = _RunningGroup(group, nodes, own, grace_s=self._grace_s, outer=self._outer)
            running.wait_for_ready()
            running.run(deadline)
            for output in group.all_outputs():
                places = [output.node] if output.node else list(nodes)
                output.set(_outputs_of([nodes[name].workspace for name in places if name in nodes], output.names))
        finally:
            for node in nodes.values():
                node.close()

    def _node(self, group: TaskGroup, name: str, own: Path, share: Share) -> LocalNode:
        parent = (self._folder or own) / name[:NODE_FOLDER_LIMIT]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            if group.workspace_type is WorkspaceType.GLOBAL:
                workspace = parent / "global"
                workspace.mkdir(exist_ok=True)
            else:
                workspace = Path(tempfile.mkdtemp(prefix="private-", dir=parent))
        except OSError as error:
            raise NodeStartError(f"node {name!r} cannot be made ready, so no node begins: {error}") from error
        removed = [own, workspace] if group.workspace_type is WorkspaceType.PRIVATE else [own]
        return self._started(name, workspace, removed, share)

    def _started(self, name: str, workspace: Path, removed: list[Path], share: Share) -> LocalNode:
        try:
            environment = {**self._environment, **share.environment}
            return LocalNode(name, workspace, removed=removed, environment=environment, cpus=share.cpus)
        except OSError as error:
            raise NodeStartError(f"node {name!r} cannot be made ready, so no node begins: {error}") from error


def run_nested(group: NestedSteps) -> None:
    """A group as a step, in the process of a task: its tasks share the workspace and the node of that task.

    Whoever stops the task sends SIGTERM to every process below its runner, and so to each of the group: this one waits
    until they have ended, instead of ending before them and having them killed.
    """
    assert isinstance(group, TaskGroup)
    instance = current_instance()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    group.restart()
    LocalSession().run_used(group.tasks_by_node(lambda _: instance.node), workspace=instance.workspace)


def _group_of(group: TaskGroup | Task) -> TaskGroup:
    if isinstance(group, TaskGroup):
        return group
    if not group.is_alone:
        raise ValueError(f"task {group.name!r} belongs to a group: run the group")
    return group.group


class _RunningGroup:
    """Between the progress of a group, which decides, and its nodes, which do."""

    def __init__(
        self,
        group: TaskGroup,
        nodes: Mapping[str, LocalNode],
        own: Path,
        *,
        grace_s: float,
        outer: OuterWorld | None = None,
    ) -> None:
        self._nodes = nodes
        self._grace_s = grace_s
        workspaces = {name: node.workspace for name, node in nodes.items()}
        addresses = {name: node.address for name, node in nodes.items()}
        self._progress = Progress(
            group, workspaces=workspaces, addresses=addresses, plans=own, free_port=_free_port, outer=outer
        )
        self._stopped: set[str] = set()
        self._poller = select.poll()
        for node in nodes.values():
            self._poller.register(node.events, select.POLLIN)

    def wait_for_ready(self) -> None:
        waiting = set(self._nodes)
        deadline = time.monotonic() + START_TIMEOUT_S
        while waiting:
            for name, event in self._events(deadline):
                if event["event"] == "lost":
                    raise NodeStartError(f"node {name!r} did not become ready, so no node begins: its runner ended")
                waiting.discard(name)
            if time.monotonic() > deadline:
                raise NodeStartError(f"nodes {', '.join(sorted(waiting))} were not ready within {START_TIMEOUT_S:g} s")

    def run(self, deadline: float | None) -> None:
        try:
            self._perform(self._progress.begin())
            while not self._progress.is_done():
                for name, event in self._events(deadline):
                    self._perform(self._take(name, event))
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"the group did not end in time; it waited for {self._progress.waits_for()}")
        except BaseException:
            self._stop()
            self._run_exit_steps()
            raise

    def _take(self, node: str, event: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if event["event"] == "lost":
            raise TaskFailedError("the runner", node, f"it ended with {event['code']}")
        if event["event"] != "ended":
            return []
        failure = event["failure"]
        if failure is not None:
            what = self._progress.describe(event["job"], failure["instance"])
            raise TaskFailedError(what, node, failure["why"], code=failure["code"])
        return self._progress.ended(event["job"])

    def _stop(self) -> None:
        for node in self._nodes.values():
            node.order(do="stop", grace_s=self._grace_s)
        deadline = time.monotonic() + self._grace_s + STOP_SLACK_S
        while len(self._stopped) < len(self._living()) and time.monotonic() < deadline:
            for name, event in self._events(deadline):
                if event["event"] == "stopped":
                    self._stopped.add(name)

    def _run_exit_steps(self) -> None:
        """Of what had been set up; a failure here is not told, because another one is."""
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        for orders in self._progress.exit_orders():
            waiting = {order["job"]: node for node, order in orders}
            self._perform(orders)
            while any(node in self._living() for node in waiting.values()) and time.monotonic() < deadline:
                for _, event in self._events(deadline):
                    waiting.pop(event.get("job"), None)

    def _living(self) -> list[str]:
        return [name for name, node in self._nodes.items() if not node.is_lost]

    def _perform(self, orders: list[tuple[str, dict[str, Any]]]) -> None:
        for node, order in orders:
            self._nodes[node].order(**order)

    def _events(self, deadline: float | None) -> list[tuple[str, dict[str, Any]]]:
        """What came by the deadline; at least one thing, unless the time is over."""
        wait_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = {descriptor for descriptor, _ in self._poller.poll(wait_ms)}
        found = []
        for name, node in self._nodes.items():
            if node.events in ready:
                found += [(name, event) for event in node.read()]
                if node.is_lost:
                    self._poller.unregister(node.events)
        return found


def _outputs_of(workspaces: list[Path], names: list[str]) -> dict[str, Any]:
    """By name, from the first workspace that has it."""
    found: dict[str, Any] = {}
    for workspace in workspaces:
        for name in set(names) - set(found):
            try:
                found[name] = read_output(workspace, name)
            except FileNotFoundError:
                continue
            except ValueError as error:
                raise TaskFailedError(
                    f"output {name!r}", workspace.parent.name, f"it cannot be read: {error}"
                ) from error
    return found


def _free_port(address: str) -> int:
    """Nobody listened there when it was asked for."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        port: int = listener.getsockname()[1]
    return port
