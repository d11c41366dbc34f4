"""Sessions run groups of tasks: what all of them have in common, and the one whose nodes are all on this machine."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from trials.arguments import plain_text, seconds
from trials.tasks.cluster import WorkspaceType
from trials.tasks.instance import ENV_GRACE, current_instance
from trials.tasks.nodes import LocalNodes
from trials.tasks.port import Nodes, Wanted
from trials.tasks.progress import GRACE_S, OuterWorld, ports_wanted
from trials.tasks.running import NodeStartError, RunningGroup, failure_of, set_outputs
from trials.tasks.steps import NestedSteps
from trials.tasks.task_group import Task, TaskGroup

START_TIMEOUT_S = 60.0  # for all nodes of a group to be ready
NODES_LIMIT = 64  # of one group
_IS_IMPORTED: ContextVar[bool] = ContextVar("is_imported", default=False)


class NotGuardedError(RuntimeError):
    """A program runs a group wherever it is imported, and each of its tasks imports it."""

    def __init__(self) -> None:
        super().__init__(
            "this program runs its group also when a process of a task imports it, to find the task's function: put "
            'what makes and runs the group below `if __name__ == "__main__":`'
        )


@contextmanager
def importing_the_program() -> Iterator[None]:
    """Meanwhile no group can be run: NotGuardedError."""
    token = _IS_IMPORTED.set(True)
    try:
        yield
    finally:
        _IS_IMPORTED.reset(token)


class GroupSession(ABC):
    """Runs groups one after the other, on the nodes that a subclass provides.

    ``folder``, where there is one, holds the workspaces: NODE/global for GLOBAL ones, which later groups find again.
    ``grace_s`` is between SIGTERM and SIGKILL when tasks are stopped; ``start_timeout_s`` is what all nodes of a group
    have to become ready.
    """

    kind = "session"  # as its errors name it

    def __init__(
        self, folder: str | os.PathLike[str] | None, *, grace_s: float, start_timeout_s: float = START_TIMEOUT_S
    ) -> None:
        self._folder = None if folder is None else Path(folder).resolve()
        self._grace_s = seconds(grace_s, what="grace_s")
        self._start_timeout_s = seconds(start_timeout_s, what="start_timeout_s", may_be_zero=False)

    @abstractmethod
    def nodes(self, group: TaskGroup, *, workspace: Path | None) -> Nodes:
        """The nodes of one run of ``group``; nothing has begun on them. ``workspace``: as in ``run_used``."""

    def run(self, group: TaskGroup | Task, *, timeout_s: float | None = None) -> None:
        """Until every task has ended well; then the outputs can be fetched. A task outside any group is run alone.

        All nodes are made ready before any step begins. The first failure stops the rest, exit steps of what had been
        set up are run, and TaskFailedError says what failed. TimeoutError after ``timeout_s``, in the same way. No
        process of the group is left when this returns, nor when this process is killed.
        """
        if _IS_IMPORTED.get():
            raise NotGuardedError
        group = _group_of(group)
        if timeout_s is not None:
            timeout_s = seconds(timeout_s, what="timeout_s")
        nodes = group.nodes()
        if not nodes:
            raise ValueError("the group has no task")
        if len(nodes) > NODES_LIMIT:
            raise ValueError(f"the group has {len(nodes)} nodes; a {self.kind} runs {NODES_LIMIT} at most")
        if group.workspace_type is WorkspaceType.GLOBAL and self._folder is None:
            raise ValueError("a GLOBAL workspace is kept for later groups: give the session a folder")
        self.run_checked(group, timeout_s=timeout_s)

    def run_checked(self, group: TaskGroup, *, timeout_s: float | None) -> None:
        """As ``run``, of a group that can be run at all."""
        self._run(group, self.nodes(group, workspace=None), timeout_s, is_new=True)

    def run_used(self, group: TaskGroup, *, timeout_s: float | None = None, workspace: Path | None = None) -> None:
        """As ``run``, of a group that is used already; ``workspace`` is that of its only node."""
        self._run(group, self.nodes(group, workspace=workspace), timeout_s, is_new=False)

    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL, for tasks that are stopped now."""
        return self._grace_s

    def outer(self) -> OuterWorld | None:
        """The world that those of the group are parts of, where there is one."""
        return None

    def _run(self, group: TaskGroup, nodes: Nodes, timeout_s: float | None, *, is_new: bool) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        running = RunningGroup(group, nodes, grace_s=self._grace_s, grace=self.grace)
        result: dict[str, Any] = {"failure": failure_of(RuntimeError("the program that ran the group was stopped"))}
        try:
            if is_new:
                group.require_unused()
            nodes.check(wanted_by(group))
            if is_new:
                group.use()
            try:
                nodes.start(wanted_by(group), group.workspace_type)
            except OSError as error:
                raise NodeStartError(f"no node begins: {error}") from error
            running.wait_for_ready(self._start_timeout_s)
            running.run(deadline, outer=self.outer())
            given = running.outputs(deadline)
            result = {"outputs": given}
            set_outputs(group, given)
        except Exception as error:
            result = result if "outputs" in result else {"failure": failure_of(error)}
            raise
        finally:
            nodes.close(result)


class LocalSession(GroupSession):
    """Nodes are names, all of them here.

    Without a ``folder`` there is a temporary one, for PRIVATE workspaces only. Output of tasks goes where this
    process's goes; they run in its working directory, with its environment and ``environment``. ``labels`` are what
    this machine is, for nodes that ask for some. ``outer``: this session is one of several that run the same group,
    each on a machine of its own, whose worlds are parts of one. ``logs`` is a folder that gets what each rank prints
    besides; then a group has one node.
    """

    kind = "local session"

    def __init__(  # noqa: PLR0913  # each is optional and named
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        labels: Mapping[str, str] | None = None,
        outer: OuterWorld | None = None,
        logs: Path | None = None,
    ) -> None:
        super().__init__(folder, grace_s=grace_s)
        self._outer, self._logs = outer, logs
        self._environment = variables(environment)
        self._labels = dict(labels or {})

    def nodes(self, group: TaskGroup, *, workspace: Path | None) -> Nodes:  # noqa: ARG002  all groups alike
        return LocalNodes(
            self._folder, environment=self._environment, labels=self._labels, workspace=workspace, logs=self._logs
        )

    def outer(self) -> OuterWorld | None:
        return self._outer


def variables(environment: Mapping[str, str] | None) -> dict[str, str]:
    """Further variables of all tasks; TypeError or ValueError for what no process can be given."""
    found = dict(environment or {})
    for name, text in found.items():
        if not plain_text(name, what="environment: the name of a variable") or "=" in name:
            raise ValueError(f"environment: the name of a variable is text without '=', not {name!r}")
        plain_text(text, what=f"environment: variable {name!r}")
    return found


def wanted_by(group: TaskGroup) -> list[Wanted]:
    """In the order of its nodes."""
    ports = ports_wanted(group)
    return [Wanted(name=node, properties=group.properties_of(node), ports=ports[node]) for node in group.nodes()]


def run_nested(group: NestedSteps) -> None:
    """A group as a step, in the process of a task: its tasks share the workspace and the node of that task.

    Whoever stops the task sends SIGTERM to every process below its runner, and so to each of the group: this one waits
    until they have ended, instead of ending before them and having them killed.
    """
    assert isinstance(group, TaskGroup)
    instance = current_instance()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    group.restart()
    session = LocalSession(grace_s=float(os.environ.get(ENV_GRACE, GRACE_S)))
    session.run_used(group.tasks_by_node(lambda _: instance.node), workspace=instance.workspace)


def _group_of(group: TaskGroup | Task) -> TaskGroup:
    if isinstance(group, TaskGroup):
        return group
    if not isinstance(group, Task):
        raise TypeError(f"a session runs a TaskGroup, or a Task alone, not {group!r:.60}, a {type(group).__name__}")
    if not group.is_alone:
        raise ValueError(f"task {group.name!r} belongs to a group: run the group")
    return group.group
