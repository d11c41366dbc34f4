"""Tasks, their groups and outputs. After Caffe2's Task, TaskGroup, TaskOutput and SetupNets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from trials.arguments import plain_text, whole_number
from trials.tasks.cluster import DEFAULT_NODE, Cluster, Node, WorkspaceType
from trials.tasks.instance import output_name
from trials.tasks.steps import NestedSteps, Step, checked, name_of

REPORT_INTERVAL_MS = 1000
INTERVAL_LIMIT_MS = 86_400_000  # a day
INSTANCES_LIMIT = 1_000  # of one task, as of a trial's processes_per_node
_GROUP: ContextVar[TaskGroup | None] = ContextVar("group", default=None)
_TASK: ContextVar[Task | None] = ContextVar("task", default=None)


class GroupUsedError(RuntimeError):
    """A group is run once, and not changed once it runs."""


class OutputMissingError(LookupError):
    """An output was asked for that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetupSteps:
    """Run once before and once after whatever they belong to: a task, each of its instances, or a node.

    The same object given several times for one node or one task runs once there.
    """

    before: Sequence[Step] = ()
    after: Sequence[Step] = ()

    def __post_init__(self) -> None:
        for step in (*self.before, *self.after):
            checked(step, what="a setup step")


@runtime_checkable
class HasSetup(Protocol):
    """``setup()`` is run before, and ``exit()`` after, each in a process of its own: what one sets in the object the
    other does not see; files of the workspace are for that. One of the two is enough."""

    def setup(self) -> object: ...


@runtime_checkable
class HasExit(Protocol):
    def exit(self) -> object: ...


Setup = SetupSteps | HasSetup | HasExit


class TaskOutput:
    """Outputs of a node's tasks: one name, a list of names, or a mapping to names; ``fetch`` gives the same shape."""

    def __init__(self, names: str | Sequence[str] | Mapping[str, str]) -> None:
        if not isinstance(names, Iterable):
            raise TypeError(f"outputs are a name, a list of names or a mapping to names, not {names!r:.60}")
        self._shape = names if isinstance(names, str) else dict(names) if isinstance(names, Mapping) else list(names)
        self._values: Mapping[str, Any] | None = None
        self.node: str | None = None  # None: the first node of the group that gave it
        for name in self.names:
            output_name(name)

    def __repr__(self) -> str:
        state = "not there yet" if self._values is None else "there"
        return f"TaskOutput({self._shape!r}, {self.node or 'any node'}, {state})"

    @property
    def names(self) -> list[str]:
        if isinstance(self._shape, str):
            return [self._shape]
        return list(self._shape.values()) if isinstance(self._shape, dict) else list(self._shape)

    def set(self, values: Mapping[str, Any]) -> None:
        """For sessions: what the node's tasks gave."""
        missing = [name for name in self.names if name not in values]
        if missing:
            where = "of the group" if self.node is None else f"of node {self.node!r}"
            raise OutputMissingError(
                f"no task {where} gave the output {', '.join(missing)}; tasks give one with trials.tasks.set_output"
            )
        self._values = values

    def fetch(self) -> Any:
        """OutputMissingError before the group has ended well."""
        if self._values is None:
            raise OutputMissingError(f"{', '.join(self.names)}: the group has not ended yet, or it failed")
        if isinstance(self._shape, str):
            return self._values[self._shape]
        if isinstance(self._shape, dict):
            return {key: self._values[name] for key, name in self._shape.items()}
        return [self._values[name] for name in self._shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStep:
    """Run on ``node``, or on every node where that is None, while the group runs."""

    step: Step
    node: str | None
    interval_ms: int

    @staticmethod
    def of(step: Step, node: str | None, interval_ms: int) -> ReportStep:
        every_ms = whole_number(interval_ms, what="interval_ms", least=1, most=INTERVAL_LIMIT_MS)
        return ReportStep(step=checked(step, what="a report step"), node=node, interval_ms=every_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """Run beside a task, in one process or, ``per_instance``, in one for each of its instances."""

    step: Step
    interval_ms: int
    per_instance: bool


class TaskGroup(NestedSteps):
    """Tasks that start together and end together. It is run once, by a session; or as a task of another group.

    Entered as a context it takes the tasks that are made inside. ``workspace_type`` is PRIVATE unless it or a task
    says GLOBAL; it is one for the whole group.
    """

    def __init__(self, workspace_type: WorkspaceType | None = None) -> None:
        if workspace_type is not None and not isinstance(workspace_type, WorkspaceType):
            raise TypeError(f"a workspace is WorkspaceType.PRIVATE or GLOBAL, not {workspace_type!r}")
        self.tasks: list[Task] = []
        self.reports: list[ReportStep] = []
        self.outputs: list[TaskOutput] = []  # of no task in particular
        self.cluster = Cluster.current()
        self._workspace_type = workspace_type
        self.group_setups: list[SetupSteps] = []
        self._node_setups: list[tuple[str | None, SetupSteps]] = []
        self._adapted: list[tuple[Any, SetupSteps]] = []  # objects with setup or exit, and what they became
        self._wanted: dict[str, dict[str, Any]] = {}  # by node
        self._used = False
        self._tokens: list[Token[TaskGroup | None]] = []

    def __repr__(self) -> str:
        return f"TaskGroup({', '.join(task.name for task in self.tasks)})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_tokens": [], "cluster": None}

    @staticmethod
    def current() -> TaskGroup | None:
        return _GROUP.get()

    @property
    def workspace_type(self) -> WorkspaceType:
        return self._workspace_type or WorkspaceType.PRIVATE

    def add(self, task: Task) -> str:
        """Its name in this group, made unique; tasks do this by themselves when they are made."""
        self.require_unused()
        wanted = task.workspace_type
        if wanted is not None and self._workspace_type not in {None, wanted}:
            raise ValueError(f"the group's workspace is {self._workspace_type}, and a task wants it {wanted}")
        self._workspace_type = self._workspace_type or wanted
        name = _unique(f"{task.node}/{task.given_name}", {other.name for other in self.tasks})
        self.tasks.append(task)
        current = Node.current()
        if current is not None and current.name == task.node:
            self._wanted.setdefault(task.node, {}).update(current.properties)
        return name

    def properties_of(self, node: str) -> Mapping[str, Any]:
        """What the node was said to be, in the cluster of the group or around its tasks."""
        of_cluster = {} if self.cluster is None else self.cluster.properties().get(node, {})
        return {**of_cluster, **self._wanted.get(node, {})}

    def report_step(self, step: Step, *, node: str | None = None, interval_ms: int = REPORT_INTERVAL_MS) -> None:
        """Run ``step`` every ``interval_ms`` on the node, and once more after its last task has ended.

        Without ``node`` it is the node of the context, and outside any on every node of the group. It runs in one
        process, so that a function may remember; if it fails, so does the group.
        """
        self.require_unused()
        self.reports.append(ReportStep.of(step, _place(node), interval_ms))

    def node_setup(self, setup: Setup, *, node: str | None = None) -> None:
        """Before any task of the node, and after all of them. Which node is meant is as for ``report_step``."""
        self.require_unused()
        self._node_setups.append((_place(node), self.steps_of(setup)))

    def group_setup(self, setup: Setup) -> None:
        """Once, on the group's first node: before the setup of any node, and after the exit of the last one."""
        self.require_unused()
        self.group_setups = list(dict.fromkeys([*self.group_setups, self.steps_of(setup)]))

    def remote_step(self, step: Step, *, nodes: Iterable[str]) -> None:
        """Run ``step`` once on each of these nodes before any task begins, from wherever this is said."""
        steps = SetupSteps(before=[step])
        for node in _names_of(nodes):
            self.node_setup(steps, node=Node(node).name)

    def steps_of(self, setup: Setup) -> SetupSteps:
        """The same steps each time for the same object; TypeError for one with neither ``setup`` nor ``exit``."""
        if isinstance(setup, SetupSteps):
            return setup
        known = next((steps for other, steps in self._adapted if other is setup), None)
        if known is None:
            before = [setup.setup] if isinstance(setup, HasSetup) else []
            after = [setup.exit] if isinstance(setup, HasExit) else []
            if not before and not after:
                raise TypeError(f"a setup has setup() or exit(), or is SetupSteps; {type(setup).__name__} has neither")
            known = SetupSteps(before=before, after=after)
            self._adapted.append((setup, known))
        return known

    # ── groups as tasks, and on other nodes ─────────────────────────────────────────────────────
    def to_task(
        self,
        *,
        name: str = "group",
        node: str | None = None,
        after: Task | Iterable[Task] = (),
        group: TaskGroup | None = None,
    ) -> Task:
        """This group as one task of another: it is run there whole, in the workspace of that task's node.

        Its outputs can be fetched when the other group has ended. ValueError where it has several nodes. From then on
        it is used.
        """
        if len(self.nodes()) != 1:
            raise ValueError(
                f"a group that is one task has tasks on one node, not on {', '.join(self.nodes()) or 'none'}"
            )
        outputs = self.all_outputs()
        self.use()
        return Task(self, name=name, node=node, after=after, group=group, outputs=outputs)

    def tasks_by_node(self, node_remap: Callable[[str], str] | Mapping[str, str] | None = None) -> TaskGroup:
        """The same tasks, setups, report steps and outputs in a new group, on the nodes that ``node_remap`` names.

        It may bring several nodes together on one; a node that a mapping does not name stays. This group is used then.
        """
        self.use()
        moved = (
            (lambda node: node)
            if node_remap is None
            else (node_remap if callable(node_remap) else lambda node: node_remap.get(node, node))
        )
        made = TaskGroup(workspace_type=self._workspace_type)
        made.group_setups, made.outputs = self.group_setups, self.outputs
        made._node_setups = [(where if where is None else moved(where), setup) for where, setup in self._node_setups]
        made.reports = [replace(r, node=r.node if r.node is None else moved(r.node)) for r in self.reports]
        for node in self.nodes():
            made._wanted.setdefault(moved(node), {}).update(self.properties_of(node))
        for task in self.tasks:
            world_of_its_own = task.world == f"task {task.name}"
            task.node, task.group = Node(moved(task.node)).name, made
            task.name = made.add(task)
            task.world = f"task {task.name}" if world_of_its_own else task.world
        for output in made.all_outputs():
            output.node = output.node if output.node is None else moved(output.node)
        return made

    def all_outputs(self) -> list[TaskOutput]:
        """Those of its tasks as well."""
        return [*self.outputs, *(output for task in self.tasks for output in task.outputs)]

    def nodes(self) -> list[str]:
        """With tasks, in the order they were first used."""
        return list(dict.fromkeys(task.node for task in self.tasks))

    def setups_of(self, node: str) -> list[SetupSteps]:
        """Each once, in the order they were given."""
        return list(dict.fromkeys(setup for where, setup in self._node_setups if where in {None, node}))

    def use(self) -> None:
        """For sessions: from now on the group is used. ValueError where it has something for a node without a task."""
        self.require_unused()
        self._require_nodes()
        self._used = True

    def _require_nodes(self) -> None:
        """What is for a node on which nothing runs would silently never be done."""
        known = self.nodes()
        for what, named in (
            ("a setup step", [node for node, _ in self._node_setups]),
            ("a report step", [report.node for report in self.reports]),
        ):
            for node in named:
                if node is not None and node not in known:
                    raise ValueError(
                        f"{what} is for node {node!r}, on which the group has no task; it has tasks on "
                        f"{', '.join(map(repr, known)) or 'no node'}. Task(node={node!r}) makes one that does nothing"
                    )

    def restart(self) -> None:
        """For the process to which a group was sent as a task: it is run there for the first time."""
        self._used = False

    def require_unused(self) -> None:
        if self._used:
            raise GroupUsedError("the group was run already; a group is used once: make another one")

    def __enter__(self) -> Self:
        self._tokens.append(_GROUP.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        _GROUP.reset(self._tokens.pop())


def _unique(name: str, taken: Collection[str]) -> str:
    """``name``, with the first number behind it that makes it none of ``taken``."""
    further = (f"{name}:{number}" for number in itertools.count(1))
    return name if name not in taken else next(found for found in further if found not in taken)


def _place(node: str | None) -> str | None:
    """The node that is named, else that of the context, else none in particular."""
    current = Node.current()
    return node if node is not None else current.name if current is not None else None


def _names_of(nodes: Iterable[str]) -> list[str]:
    """Of a list of names; TypeError for one name alone, whose letters would be taken for names."""
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise TypeError(f"nodes is a list of names, as ['a', 'b'], not {nodes!r:.60}")
    return list(nodes)


def _tasks(after: Task | Iterable[Task], *, what: str) -> tuple[Task, ...]:
    """Of a task or several; TypeError for anything else, such as their names."""
    found = (after,) if isinstance(after, Task) or not isinstance(after, Iterable) else tuple(after)
    for task in found:
        if not isinstance(task, Task):
            raise TypeError(f"{what}: after has tasks, as Task(…) returns them, not {task!r:.60}")
    return found


class Task:
    """A step on a node, in one or several processes at once, which are its instances. Without a step it ends once what
    it comes ``after`` and its setup steps have.

    It belongs to the group and the node of the context; outside any group it is one of its own, which a session runs
    when it is given the task. ``after`` are tasks of the group that must have ended well
    before it starts. Instances get RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; tasks that name the same
    ``world`` count their ranks together, in the order they were made. Entered as a context it takes the outputs that
    are asked for inside.
    """

    def __init__(  # noqa: PLR0913  # as Caffe2's: each is optional and named
        self,
        step: Step | None = None,
        *,
        name: str | None = None,
        num_instances: int = 1,
        after: Task | Iterable[Task] = (),
        setup: Setup | None = None,
        instance_setup: Setup | None = None,
        outputs: str | TaskOutput | Iterable[str | TaskOutput] = (),
        workspace_type: WorkspaceType | None = None,
        world: str | None = None,
        group: TaskGroup | None = None,
        node: str | None = None,
    ) -> None:
        found = group or TaskGroup.current()
        self.is_alone = found is None
        found = found or TaskGroup()
        count = whole_number(num_instances, what="num_instances", least=1, most=INSTANCES_LIMIT)
        current = Node.current()
        self.node = Node(node).name if node is not None else current.name if current is not None else DEFAULT_NODE
        self.given_name = plain_text(name or (name_of(step) if step is not None else "task"), what="a task's name")
        self.step = None if step is None else checked(step, what=f"task {self.given_name!r}")
        self.num_instances = count
        self.after = _tasks(after, what=f"task {self.given_name!r}")
        self.setup, self.instance_setup = (found.steps_of(each or SetupSteps()) for each in (setup, instance_setup))
        self.reports: list[TaskReport] = []
        self.workspace_type = workspace_type
        self.outputs: list[TaskOutput] = []
        self.group = found
        self._tokens: list[Token[Task | None]] = []
        strange = [task.name for task in self.after if task.group is not found]
        if strange:
            raise ValueError(f"task {self.given_name!r} comes after {', '.join(strange)} of another group")
        self.name: str = found.add(self)
        self.world = world if world is not None else f"task {self.name}"
        for output in [outputs] if isinstance(outputs, str | TaskOutput) else outputs:
            self.add_output(output)

    def __repr__(self) -> str:
        several = f", {self.num_instances} instances" if self.num_instances > 1 else ""
        after = f", after {', '.join(task.name for task in self.after)}" if self.after else ""
        return f"Task({self.name}{several}{after})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_tokens": []}

    @staticmethod
    def current() -> Task | None:
        return _TASK.get()

    def report_step(self, step: Step, *, interval_ms: int = REPORT_INTERVAL_MS, per_instance: bool = False) -> None:
        """Run ``step`` every ``interval_ms`` while the task's instances run, and once more after they have ended.

        ``per_instance``: one process for each instance, with its ranks; else one for the task.
        """
        self.group.require_unused()
        checked_step = ReportStep.of(step, self.node, interval_ms).step
        self.reports.append(TaskReport(step=checked_step, interval_ms=interval_ms, per_instance=per_instance))

    @property
    def has_instances(self) -> bool:
        """Whether processes are started for it: a task may be there for its outputs, its setup or its place alone."""
        return self.step is not None or bool(self.instance_setup.before or self.instance_setup.after)

    def add_output(self, output: str | Sequence[str] | Mapping[str, str] | TaskOutput) -> TaskOutput:
        """What is to be fetched from the task's node when the group has ended."""
        self.group.require_unused()
        added = output if isinstance(output, TaskOutput) else TaskOutput(output)
        added.node = self.node
        self.outputs.append(added)
        return added

    def __enter__(self) -> Self:
        self._tokens.append(_TASK.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        _TASK.reset(self._tokens.pop())


def final_output(names: str | Sequence[str] | Mapping[str, str]) -> TaskOutput:
    """An output of the task of the context, or of its node; outside both, of the first node that gave it.

    Its value is what the node's tasks gave last, once all of them have ended.
    """
    task, group, node = Task.current(), TaskGroup.current(), Node.current()
    if task is not None:
        return task.add_output(names)
    if group is None:
        raise RuntimeError("an output belongs to a group: ask for it inside `with TaskGroup() as group:`")
    group.require_unused()
    output = TaskOutput(names)
    output.node = None if node is None else node.name
    group.outputs.append(output)
    return output


def distributed(
    step: Step, *, nodes: Sequence[str], processes_per_node: int, name: str = "train", after: Task | Iterable[Task] = ()
) -> list[Task]:
    """One task on each node whose instances form one world, as torchrun would start them; a further call makes a
    further world, whatever the name."""
    after = _tasks(after, what=f"task {name!r}")
    group = TaskGroup.current()
    world = _unique(f"distributed {name}", set() if group is None else {task.world for task in group.tasks})
    return [
        Task(step, name=name, num_instances=processes_per_node, node=node, world=world, after=after)
        for node in _names_of(nodes)
    ]
