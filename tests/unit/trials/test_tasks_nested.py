"""What nodes ask for, groups in groups, setups that are objects, reports of tasks, and values that are tensors."""

from __future__ import annotations

import functools
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.task_groups import do_nothing, jobs, progress
from trials.checkpoints.file_format import MAGIC_PIECES, MAGIC_STREAM
from trials.tasks import (
    Cluster,
    GroupUsedError,
    LocalSession,
    Node,
    SetupSteps,
    Task,
    TaskGroup,
    distributed,
    final_output,
    set_output,
)
from trials.tasks import instance as instances
from trials.tasks.instance import read_output
from trials.tasks.plans import placed
from trials.tasks.progress import Progress, worlds_of
from trials.tasks.shares import Machine, Share, divided, placed_on, shares_of


@pytest.fixture
def progress_of() -> Callable[[TaskGroup], Progress]:
    return progress


# ── what nodes ask for ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"gpus": -1}, "gpus is a whole number of at least 0, not -1"),
        ({"cpus": 0}, "cpus is a whole number of at least 1, not 0"),
        ({"memory": "8GB"}, "memory is a whole number of at least 1, not '8GB'"),
        ({"gpus": True}, "gpus is a whole number"),
    ],
)
def test_a_property_that_no_node_can_have_is_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"node 'far': {message}"):
        Node("far", **properties)


def test_a_property_that_means_nothing_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="disk"):
        Node("far", disk=3)  # type: ignore[call-arg]  # what is tested


def test_each_node_gets_cores_and_devices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1, 5})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, GPU-b,2")

    shares = shares_of({"a": {"cpus": 2, "gpus": 1}, "b": {"cpus": 1, "gpus": 2}, "c": {}, "d": {"gpus": 0}}, {})

    assert shares == {
        "a": Share(cpus=(1, 3), environment={"CUDA_VISIBLE_DEVICES": "0"}),
        "b": Share(cpus=(5,), environment={"CUDA_VISIBLE_DEVICES": "GPU-b,2"}),
        "c": Share(),
        "d": Share(environment={"CUDA_VISIBLE_DEVICES": ""}),
    }


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"a": {"cpus": 2}, "b": {"cpus": 2}}, "node 'b' wants 2 cores of its own, and this machine has 1 left"),
        ({"far": {"gpus": 4}}, "node 'far' wants 4 GPUs of its own, and this machine has 0 left"),
        ({"far": {"memory": 1 << 60}}, "node 'far' wants .* bytes of memory, more than is left here"),
        ({"far": {"labels": {"zone": "b"}}}, "node 'far' wants the label zone='b', and the session has zone='a'"),
        ({"far": {"labels": {"disk": "fast"}}}, "wants the label disk='fast', and the session has no such label"),
    ],
)
def test_what_this_machine_cannot_give_is_said_by_name(
    wanted: dict[str, dict[str, Any]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ValueError, match=message):
        shares_of(wanted, {"zone": "a"})


def machine(name: str, **given: Any) -> Machine:
    return Machine(**({"cores": (0, 1, 2, 3), "devices": (), "memory": 1 << 30, "name": name} | given))


def test_nodes_are_spread_over_the_machines_that_can_give_what_they_ask_for() -> None:
    near, far = machine("near"), machine("far", devices=("G1", "G2"), labels={"zone": "b"})

    assert placed_on({"a": {}, "b": {}, "c": {}}, [near, far]) == {"a": 0, "b": 1, "c": 0}
    assert placed_on({"a": {}, "b": {"gpus": 1}, "c": {"gpus": 1}}, [near, far]) == {"a": 0, "b": 1, "c": 1}
    assert placed_on({"a": {"labels": {"zone": "b"}}, "b": {}}, [near, far]) == {"a": 1, "b": 0}
    assert placed_on({"a": {"cpus": 4}, "b": {"cpus": 3}}, [near, far]) == {"a": 0, "b": 1}
    with pytest.raises(ValueError, match="node 'c' wants 2 GPUs of its own, and far has 0 left"):
        placed_on({"a": {"gpus": 2}, "c": {"gpus": 2}}, [near, far])


def test_nodes_of_a_trial_on_one_machine_divide_its_cores() -> None:
    near, far, other = machine("near", boot="x"), machine("far", boot="x"), machine("other", boot="y")

    assert [one.cores for one in divided([near, far, other])] == [(0, 2), (1, 3), (0, 1, 2, 3)]
    assert [one.memory for one in divided([near, far, other])] == [1 << 29, 1 << 29, 1 << 30]


def test_a_group_that_asks_for_too_much_is_refused_before_it_is_used() -> None:
    with TaskGroup() as group, Node("far", labels={"zone": "b"}):
        Task("true")
    for _ in range(2):
        with pytest.raises(ValueError, match="node 'far' wants the label"):
            LocalSession().run(group)


def test_a_node_is_what_its_cluster_and_its_contexts_say() -> None:
    with Cluster():
        Node("n", gpus=1)
        with TaskGroup() as group, Node("n", cpus=2):
            Task("true")

    assert group.properties_of("n") == {"gpus": 1, "cpus": 2}
    assert group.properties_of("other") == {}


# ── groups in groups, on other nodes ────────────────────────────────────────────────────────────
def test_a_group_on_one_node_becomes_one_task_of_another() -> None:
    with TaskGroup() as inner:
        Task(do_nothing)
        found = final_output("x")
    with TaskGroup() as outer, Node("n"):
        task = inner.to_task(name="both")

    assert outer.tasks == [task]
    assert task.name == "n/both"
    assert outer.all_outputs() == [found]
    assert found.node == "n"
    with pytest.raises(GroupUsedError):
        Task("true", group=inner)
    sent = pickle.loads(pickle.dumps(task.step))
    assert [each.step for each in sent.tasks] == [do_nothing]


def test_a_group_on_several_nodes_is_not_one_task() -> None:
    with TaskGroup() as group:
        distributed("true", nodes=["a", "b"], processes_per_node=1)
    with TaskGroup(), pytest.raises(ValueError, match="tasks on one node, not on a, b"):
        group.to_task()
    with TaskGroup(), pytest.raises(ValueError, match="not on none"):
        TaskGroup().to_task()


@pytest.mark.parametrize("remap", [{"b": "a"}, lambda _: "a"])
def test_nodes_can_be_brought_together(remap: Any) -> None:
    with TaskGroup() as group:
        group.node_setup(SetupSteps(before=["true"]), node="b")
        group.report_step("true", node="b")
        with Node("a", cpus=1):
            first = Task("true", outputs=["x"])
        with Node("b", gpus=0):
            second = Task("true", after=[first], outputs=["y"])

    moved = group.tasks_by_node(remap)

    assert moved.tasks == [first, second]
    assert [task.name for task in moved.tasks] == ["a/true", "a/true:1"]
    assert moved.nodes() == ["a"]
    assert moved.properties_of("a") == {"cpus": 1, "gpus": 0}
    assert [output.node for output in moved.all_outputs()] == ["a", "a"]
    assert [report.node for report in moved.reports] == ["a"]
    assert len(moved.setups_of("a")) == 1
    assert set(worlds_of(moved.tasks)) == {"task a/true", "task a/true:1"}
    with pytest.raises(GroupUsedError):
        group.tasks_by_node()


# ── setups that are objects, of a group, of other nodes ─────────────────────────────────────────
class Server:
    def setup(self) -> None:
        """Runs before."""

    def exit(self) -> None:
        """Runs after."""


class OnlySetup:
    def setup(self) -> None:
        """Runs before."""


def test_an_object_with_setup_or_exit_is_a_setup_and_runs_once_where_it_is_given_twice() -> None:
    server, only = Server(), OnlySetup()
    with TaskGroup() as group, Node("n"):
        group.node_setup(server)
        group.node_setup(server)
        task = Task("true", setup=only, instance_setup=server)

    (steps,) = group.setups_of("n")
    assert (steps.before, steps.after) == ([server.setup], [server.exit])
    assert (task.setup.before, task.setup.after) == ([only.setup], [])
    assert task.instance_setup is steps
    with pytest.raises(TypeError, match="object has neither"):
        group.node_setup(object())  # type: ignore[arg-type]  # what is tested


def test_a_step_for_other_nodes_runs_on_each_before_any_task() -> None:
    with TaskGroup() as group, Node("a"):
        group.remote_step("true", nodes=["b", "c"])
        Task("true")

    assert [len(group.setups_of(node)) for node in ("a", "b", "c")] == [0, 1, 1]


def test_the_setup_of_a_group_runs_once_around_everything(progress_of: Callable[[TaskGroup], Progress]) -> None:
    steps = SetupSteps(before=["true"], after=["true"])
    with TaskGroup() as group:
        group.group_setup(steps)
        group.group_setup(steps)
        group.node_setup(steps, node="b")
        Task("true", node="a")
        Task("true", node="b")
    progress = progress_of(group)

    assert jobs(progress.begin()) == ["run group_setup:a"]
    assert jobs(progress.ended("group_setup:a")) == ["run node_setup:b"]
    assert jobs(progress.ended("node_setup:b")) == ["run task:a/true", "run task:b/true"]
    assert jobs(progress.ended("task:a/true")) == []
    assert jobs(progress.ended("task:b/true")) == ["run node_exit:b"]
    assert jobs(progress.ended("node_exit:b")) == ["run group_exit:a"]
    assert not progress.is_done()
    assert jobs(progress.ended("group_exit:a")) == []
    assert progress.is_done()
    assert progress.describe("group_setup:a", 0) == "a setup step of the group"


def test_after_a_failure_the_exit_of_the_group_comes_last(progress_of: Callable[[TaskGroup], Progress]) -> None:
    steps = SetupSteps(before=["true"], after=["true"])
    with TaskGroup() as group:
        group.group_setup(steps)
        group.node_setup(steps, node="a")
        Task("true", node="a")
    progress = progress_of(group)
    progress.begin()
    assert progress.exit_orders() == []  # its setup has not ended

    with TaskGroup() as group:
        group.group_setup(steps)
        group.node_setup(steps, node="a")
        Task("true", node="a")
    progress = progress_of(group)
    progress.begin()
    progress.ended("group_setup:a")
    progress.ended("node_setup:a")
    assert [jobs(orders) for orders in progress.exit_orders()] == [["run node_exit:a"], ["run group_exit:a"]]


# ── report steps of a task ──────────────────────────────────────────────────────────────────────
def test_report_steps_of_a_task_run_beside_it_and_end_before_its_exit(
    progress_of: Callable[[TaskGroup], Progress],
) -> None:
    with TaskGroup() as group, Node("n"):
        task = Task("true", num_instances=2, setup=SetupSteps(after=["true"]))
        task.report_step("true", interval_ms=50)
        task.report_step("true", per_instance=True)
    with pytest.raises(ValueError, match="interval_ms is at least 1"):
        task.report_step("true", interval_ms=0)
    progress = progress_of(group)

    orders = progress.begin()
    assert jobs(orders) == ["run task:n/true", "run task_report:n/true#0", "run task_report:n/true#1"]
    _, once = orders[1]
    _, each = orders[2]
    assert (once["interval_ms"], len(once["instances"])) == (50, 1)
    assert [instance["environment"]["RANK"] for instance in each["instances"]] == ["0", "1"]
    assert "RANK" not in once["instances"][0]["environment"]
    assert jobs(progress.ended("task:n/true")) == ["end task_report:n/true#0", "end task_report:n/true#1"]
    assert jobs(progress.ended("task_report:n/true#1")) == []
    assert jobs(progress.ended("task_report:n/true#0")) == ["run task_exit:n/true"]
    assert progress.describe("task_report:n/true#0", 0) == "a report step of task 'n/true'"


# ── names and values ────────────────────────────────────────────────────────────────────────────
def test_a_function_with_arguments_has_the_name_of_the_function() -> None:
    with TaskGroup():
        assert Task(functools.partial(set_output, "x", 3)).name == "local/set_output"


def test_everything_says_what_it_is() -> None:
    with Cluster() as cluster, TaskGroup() as group, Node("n", cpus=2) as node:
        first = Task("true")
        second = Task("true", num_instances=3, after=[first])
        output = final_output(["x"])

    assert repr(node) == "Node('n', cpus=2)"
    assert repr(cluster) == "Cluster(n)"
    assert repr(second) == "Task(n/true:1, 3 instances, after n/true)"
    assert repr(group) == "TaskGroup(n/true, n/true:1)"
    assert repr(output) == "TaskOutput(['x'], n, not there yet)"


def test_tensors_and_arrays_are_outputs_and_the_last_value_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    set_output("w", {"weights": torch.arange(3.0), "counts": (np.array([1, 2]), 3)})
    found = read_output(tmp_path, "w")
    assert torch.equal(found["weights"], torch.arange(3.0))
    assert found["counts"][0].tolist() == [1, 2]

    set_output("w", 3)
    assert read_output(tmp_path, "w") == 3
    set_output("w", torch.ones(2))
    assert read_output(tmp_path, "w").tolist() == [1.0, 1.0]
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["w.json"]
    with pytest.raises(TypeError, match="output 'f'"):
        set_output("f", lambda: None)
    with pytest.raises(FileNotFoundError):
        read_output(tmp_path, "never")


def test_of_two_forms_the_last_one_counts_whenever_the_process_that_gives_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    set_output("w", 3)
    write_atomically = instances.write_atomically

    def write_and_be_killed(path: str, data: bytes) -> None:
        write_atomically(path, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(instances, "write_atomically", write_and_be_killed)
    with pytest.raises(KeyboardInterrupt):
        set_output("w", torch.ones(2))
    assert read_output(tmp_path, "w").tolist() == [1.0, 1.0]
    with pytest.raises(KeyboardInterrupt):
        set_output("w", 4)
    assert read_output(tmp_path, "w") == 4


def test_no_json_begins_as_a_state_does() -> None:
    assert all(magic.startswith(instances.STATE_BEGINS) for magic in (MAGIC_STREAM, MAGIC_PIECES))
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(instances.STATE_BEGINS)


def test_reading_an_output_leaves_the_generators_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    set_output("w", torch.ones(2))
    torch.rand(3)
    before = torch.get_rng_state()

    read_output(tmp_path, "w")

    assert torch.equal(before, torch.get_rng_state())


# ── plans on other machines ─────────────────────────────────────────────────────────────────────
def test_a_program_is_found_where_it_lies_on_the_node_that_runs_a_plan() -> None:
    sent = {
        "dir": "/near/work", "orig_dir": "/near/work", "init_main_from_path": "/near/work/sub/group.py",
        "sys_path": ["/near/work", "/near/site-packages", "/near/workshop"], "name": "task",
    }  # fmt: skip

    assert placed(sent, here="/near/work", path=["/far/site-packages"]) == sent
    assert placed(sent, here="/far/1/work", path=["/far/site-packages"]) == {
        "dir": "/far/1/work", "orig_dir": "/far/1/work", "init_main_from_path": "/far/1/work/sub/group.py",
        "sys_path": ["/far/1/work", "/far/site-packages"], "name": "task",
    }  # fmt: skip


def test_a_program_without_a_file_has_none_elsewhere_either() -> None:
    sent = {"dir": "/near", "orig_dir": None, "sys_path": [""]}
    assert placed(sent, here="/far", path=["/x"]) == {"dir": "/far", "orig_dir": None, "sys_path": ["/x"]}


def test_an_output_of_a_command_that_is_nested_too_deeply_is_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "w.json").write_text("[" * 100_000)

    with pytest.raises(ValueError, match="nested too deeply"):
        read_output(tmp_path, "w")
