"""What a group of tasks is, and in which order its parts are to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.task_groups import do_nothing, jobs, progress
from trials.tasks import (
    Cluster,
    GroupUsedError,
    LocalSession,
    Node,
    OutputMissingError,
    SetupSteps,
    Task,
    TaskGroup,
    WorkspaceType,
    current_instance,
    distributed,
    final_output,
    set_output,
)
from trials.tasks.progress import Progress, worlds_of


@pytest.fixture
def progress_of() -> Callable[[TaskGroup], Progress]:
    return progress


# ── contexts and names ──────────────────────────────────────────────────────────────────────────
def test_tasks_belong_to_the_node_and_the_group_of_the_context() -> None:
    with Cluster() as cluster, TaskGroup() as group:
        first = Task("true")
        with Node("n1", gpus=1):
            second = Task("true")
            with Node("n2"):
                third = Task("true")
        with Node("n1", gpus=2, memory=3):
            fourth = Task("true", node="n3")

    assert [task.node for task in (first, second, third, fourth)] == ["local", "n1", "n2", "n3"]
    assert group.nodes() == ["local", "n1", "n2", "n3"]
    assert cluster.nodes() == ["n1", "n2", "n3"]
    assert cluster.properties()["n1"] == {"gpus": 2, "memory": 3}
    assert group.cluster is cluster
    assert Cluster.current() is TaskGroup.current() is Node.current() is None


def test_names_are_made_unique_on_their_node() -> None:
    with TaskGroup() as group:
        for node in ("a", "a", "b", "a"):
            Task(do_nothing, node=node)
        Task("python train.py", node="a", name="do_nothing")
        Task("/usr/bin/env true", node="a")

    names = ["a/do_nothing", "a/do_nothing:1", "b/do_nothing", "a/do_nothing:2", "a/do_nothing:3", "a/env"]
    assert [task.name for task in group.tasks] == names


def test_a_task_outside_any_group_is_a_group_of_its_own_and_one_of_a_group_is_not_run_alone() -> None:
    alone, other = Task("true"), Task("true")
    assert alone.group.tasks == [alone]
    assert other.group is not alone.group
    with TaskGroup():
        member = Task("true")
    with pytest.raises(ValueError, match="task 'local/true' belongs to a group: run the group"):
        LocalSession().run(member)


def test_an_output_outside_any_group_is_refused() -> None:
    with pytest.raises(RuntimeError, match="an output belongs to a group"):
        final_output("x")


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_node_needs_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="a node's name"):
        Node(name)


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (lambda: None, TypeError, "cannot be sent to another process"),
        ("", ValueError, "a command is text or a list of texts"),
        (["a", 3], ValueError, "a command is text or a list of texts"),
        (3, TypeError, "a step is a command, a function or a group, not int"),
    ],
)
def test_a_step_that_cannot_run_elsewhere_is_refused_when_the_task_is_made(
    step: Any, error: type[Exception], message: str
) -> None:
    with TaskGroup(), pytest.raises(error, match=f"task 'mine': .*{message}"):
        Task(step, name="mine")
    with pytest.raises(error, match="a setup step"):
        SetupSteps(before=[step])


def test_a_group_is_used_once_and_not_changed_afterwards() -> None:
    with TaskGroup() as group:
        task = Task("true")
    group.use()

    for change in (
        group.use,
        lambda: Task("true", group=group),
        lambda: task.add_output("x"),
        lambda: group.report_step("true"),
        lambda: group.node_setup(SetupSteps()),
        lambda: LocalSession().run(group),
    ):
        with pytest.raises(GroupUsedError, match="used once"):
            change()


def test_a_workspace_type_may_be_given_by_its_place_and_nothing_else_there() -> None:
    assert TaskGroup(WorkspaceType.GLOBAL).workspace_type is WorkspaceType.GLOBAL
    with pytest.raises(TypeError, match=r"WorkspaceType\.PRIVATE or GLOBAL, not 'global'"):
        TaskGroup("global")  # type: ignore[arg-type]  # what it refuses


def test_one_workspace_type_holds_for_the_whole_group() -> None:
    assert TaskGroup().workspace_type is WorkspaceType.PRIVATE
    with TaskGroup() as group:
        Task("true", workspace_type=WorkspaceType.GLOBAL)
        Task("true")
    assert group.workspace_type is WorkspaceType.GLOBAL
    with TaskGroup(workspace_type=WorkspaceType.PRIVATE), pytest.raises(ValueError, match="workspace is private"):
        Task("true", workspace_type=WorkspaceType.GLOBAL)


def test_what_a_group_cannot_be_run_with_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no task"):
        LocalSession().run(TaskGroup())
    with TaskGroup(workspace_type=WorkspaceType.GLOBAL) as group:
        Task("true")
    with pytest.raises(ValueError, match="give the session a folder"):
        LocalSession().run(group)
    with TaskGroup() as group:
        for number in range(65):
            Task("true", node=f"n{number}")
    with pytest.raises(ValueError, match="has 65 nodes; a local session runs 64 at most"):
        LocalSession().run(group)
    with TaskGroup(), pytest.raises(ValueError, match="num_instances is at least 1"):
        Task("true", num_instances=0)
    with TaskGroup() as group, pytest.raises(ValueError, match="interval_ms is at least 1"):
        group.report_step("true", interval_ms=0)


def test_a_task_comes_after_tasks_of_its_own_group_only() -> None:
    with TaskGroup():
        strange = Task("true")
    with TaskGroup(), pytest.raises(ValueError, match="comes after local/true of another group"):
        Task("true", after=[strange])


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────
def test_outputs_have_the_shape_they_were_asked_for_in() -> None:
    with TaskGroup() as group, Node("n"):
        with Task("true") as task:
            one = final_output("a")
        several, record = final_output(["b", "a"]), final_output({"x": "a", "y": "b"})

    assert group.all_outputs() == [several, record, one]
    assert task.outputs == [one]
    assert {output.node for output in group.all_outputs()} == {"n"}
    with pytest.raises(OutputMissingError, match="b, a: the group has not ended yet"):
        several.fetch()
    for output in (one, several, record):
        output.set({"a": 1, "b": 2})
    assert (one.fetch(), several.fetch(), record.fetch()) == (1, [2, 1], {"x": 1, "y": 2})
    with pytest.raises(OutputMissingError, match="no task of node 'n' gave the output a"):
        one.set({"b": 2})


@pytest.mark.parametrize("name", ["", "../x", "a b", ".hidden"])
def test_an_output_needs_a_plain_name(name: str) -> None:
    with TaskGroup(), pytest.raises(ValueError, match="an output's name"):
        final_output(name)


def test_outside_a_task_there_is_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASK_NAME", raising=False)
    with pytest.raises(RuntimeError, match="TASK_NAME is not set"):
        current_instance()


def test_an_output_is_a_json_value_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    set_output("a", {"x": [1, 2]})
    assert (tmp_path / "outputs" / "a.json").read_text() == '{"x": [1, 2]}'
    with pytest.raises(ValueError, match=r"'large' has .* bytes"):
        set_output("large", "x" * (16 << 20))


# ── ranks ───────────────────────────────────────────────────────────────────────────────────────
def test_each_task_is_a_world_of_its_own_unless_it_names_one() -> None:
    with TaskGroup() as group:
        Task("true", num_instances=3)
        distributed("true", nodes=["a", "b"], processes_per_node=2)
    worlds = worlds_of(group.tasks)

    assert {name: world.size for name, world in worlds.items()} == {"task local/true": 3, "distributed train": 4}
    assert worlds["distributed train"].first_rank == {"a/train": 0, "b/train": 2}
    assert worlds["distributed train"].first_node == "a"


def test_two_trainings_one_after_the_other_are_two_worlds() -> None:
    with TaskGroup() as group:
        first = distributed("true", nodes=["a", "b"], processes_per_node=2)
        distributed("true", nodes=["a", "b"], processes_per_node=2, after=first)
    worlds = worlds_of(group.tasks)

    assert {name: world.size for name, world in worlds.items()} == {"distributed train": 4, "distributed train:1": 4}
    assert worlds["distributed train:1"].first_rank == {"a/train:1": 0, "b/train:1": 2}


def test_instances_get_what_torchrun_would_give_them(progress_of: Callable[[TaskGroup], Progress]) -> None:
    with TaskGroup() as group:
        distributed("python train.py", nodes=["a", "b"], processes_per_node=2)
    orders = progress_of(group).begin()

    given = [instance["environment"] for _, order in orders for instance in order["instances"]]
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]) for e in given] == [
        ("0", "0", "4", "2"), ("1", "1", "4", "2"), ("2", "0", "4", "2"), ("3", "1", "4", "2"),
    ]  # fmt: skip
    assert {(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in given} == {("127.0.0.1", "4711")}
    assert [node for node, _ in orders] == ["a", "b"]


# ── order ───────────────────────────────────────────────────────────────────────────────────────
def a_full_group() -> TaskGroup:
    shared = SetupSteps(before=["true"], after=["true"])
    with TaskGroup() as group:
        group.node_setup(shared)
        group.node_setup(shared)
        with Node("a"):
            group.report_step("true")
            first = Task("true", name="first", setup=SetupSteps(before=["true"], after=["true"]))
        with Node("b"):
            Task("true", name="second", after=[first])
    return group


def test_the_way_of_a_group_that_ends_well(progress_of: Callable[[TaskGroup], Progress]) -> None:
    progress = progress_of(a_full_group())

    assert jobs(progress.begin()) == ["run node_setup:a", "run node_setup:b"]
    assert jobs(progress.ended("node_setup:b")) == []
    assert jobs(progress.ended("node_setup:a")) == ["run report:a#0", "run task_setup:a/first"]
    assert jobs(progress.ended("task_setup:a/first")) == ["run task:a/first"]
    assert jobs(progress.ended("task:a/first")) == ["run task_exit:a/first"]
    assert jobs(progress.ended("task_exit:a/first")) == ["run task:b/second", "end report:a#0"]
    assert jobs(progress.ended("report:a#0")) == ["run node_exit:a"]
    assert progress.waits_for() == "an exit step on node 'a', task 'b/second'"
    assert jobs(progress.ended("node_exit:a")) == []
    assert not progress.is_done()
    assert jobs(progress.ended("task:b/second")) == ["run node_exit:b"]
    assert jobs(progress.ended("node_exit:b")) == []
    assert progress.is_done()


def test_a_report_step_that_ends_by_itself_ends_neither_its_node_nor_the_group(
    progress_of: Callable[[TaskGroup], Progress],
) -> None:
    with TaskGroup() as group, Node("a"):
        group.report_step("true")
        Task("true", name="only")
        group.node_setup(SetupSteps(after=["true"]))
    progress = progress_of(group)
    progress.begin()

    assert progress.ended("report:a#0") == []
    assert not progress.is_done()
    assert jobs(progress.ended("task:a/only")) == ["run node_exit:a"]


def test_after_a_failure_exit_steps_run_for_what_had_been_set_up(progress_of: Callable[[TaskGroup], Progress]) -> None:
    progress = progress_of(a_full_group())
    progress.begin()
    progress.ended("node_setup:b")
    assert [jobs(orders) for orders in progress.exit_orders()] == [["run node_exit:b"]]

    progress = progress_of(a_full_group())
    progress.begin()
    for job in ("node_setup:a", "node_setup:b", "task_setup:a/first"):
        progress.ended(job)
    assert [jobs(orders) for orders in progress.exit_orders()] == [
        ["run task_exit:a/first"], ["run node_exit:a", "run node_exit:b"],
    ]  # fmt: skip
    assert progress.exit_orders() == []

    progress = progress_of(a_full_group())
    progress.begin()
    for job in ("node_setup:a", "node_setup:b", "task_setup:a/first", "task:a/first"):
        progress.ended(job)
    assert [jobs(orders) for orders in progress.exit_orders()] == [["run node_exit:a", "run node_exit:b"]], (
        "the exit steps of the task have begun"
    )


def test_a_group_of_outputs_alone_ends_at_once(progress_of: Callable[[TaskGroup], Progress]) -> None:
    with TaskGroup() as group:
        Task(outputs=["a"])
    progress = progress_of(group)

    assert progress.begin() == []
    assert progress.is_done()


def test_a_task_without_a_step_ends_once_what_it_comes_after_and_its_own_steps_have(
    progress_of: Callable[[TaskGroup], Progress],
) -> None:
    steps = SetupSteps(before=["true"], after=["true"])
    with TaskGroup() as group:
        first = Task("true", name="first")
        barrier = Task(name="barrier", after=[first], setup=steps)
        Task("true", name="last", after=[barrier])
        Task(name="alone", instance_setup=steps, num_instances=2)
    progress = progress_of(group)

    assert jobs(progress.begin()) == ["run task:local/first", "run task:local/alone"]
    assert jobs(progress.ended("task:local/first")) == ["run task_setup:local/barrier"]
    assert jobs(progress.ended("task_setup:local/barrier")) == ["run task_exit:local/barrier"]
    assert jobs(progress.ended("task_exit:local/barrier")) == ["run task:local/last"]
    assert jobs(progress.ended("task:local/last")) == []
    assert not progress.is_done()
    assert jobs(progress.ended("task:local/alone")) == []
    assert progress.is_done()


def test_parts_of_a_group_are_named_for_people(progress_of: Callable[[TaskGroup], Progress]) -> None:
    with TaskGroup() as group:
        Task("true", num_instances=2)
        Task("true", name="one")
    progress = progress_of(group)

    assert progress.describe("task:local/true", 1) == "instance 1 of task 'local/true'"
    assert progress.describe("task:local/one", 0) == "task 'local/one'"
    assert progress.describe("task_exit:local/one", 0) == "an exit step of task 'local/one'"
    assert progress.describe("node_setup:local", 0) == "a setup step"
    assert progress.describe("report:local#0", 0) == "a report step"
