"""Groups in groups, nodes with cores of their own, setups that are objects, reports of tasks: real processes."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from tests.integration.trials import tasks_steps as steps
from tests.integration.trials.fake_service import is_running
from tests.integration.trials.task_sessions import SESSIONS
from trials.tasks import GroupSession, LocalSession, Node, SetupSteps, Task, TaskFailedError, TaskGroup, final_output

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60.0


@pytest.fixture(params=sorted(SESSIONS))
def session(request: pytest.FixtureRequest, tmp_path: Path) -> GroupSession:
    return SESSIONS[request.param](tmp_path)


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().splitlines()


def test_a_task_outside_any_group_runs_alone(session: GroupSession) -> None:
    task = Task(functools.partial(steps.give, "x", [1, 2]), outputs=["x"])

    session.run(task, timeout_s=TIMEOUT_S)

    assert task.outputs[0].fetch() == [1, 2]


def test_a_tensor_comes_back_from_a_task(session: GroupSession) -> None:
    task = Task(steps.give_tensor, outputs=["weights"])

    session.run(task, timeout_s=TIMEOUT_S)

    assert task.outputs[0].fetch()["w"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_group_in_a_group_in_a_group_gives_its_outputs(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as innermost:
        innermost.node_setup(steps.Marks("innermost"))
        Task(functools.partial(steps.give, "deep", 3))
        deep = final_output("deep")
    with TaskGroup() as inner, Node("elsewhere"):
        first = innermost.to_task(name="deep")
        Task(functools.partial(steps.note, "after the innermost"), after=[first])
    with TaskGroup() as outer, Node("n"):
        task = inner.to_task(name="both")
        Task(functools.partial(steps.note, "last"), after=[task])

    session.run(outer, timeout_s=TIMEOUT_S)

    assert deep.fetch() == 3
    assert notes(tmp_path) == ["innermost set up", "innermost left", "after the innermost", "last"]


def test_a_failure_in_a_nested_group_stops_everything(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as inner:
        Task(steps.resist)
        Task(steps.resist)
        Task(steps.wait_then_fail)
    with TaskGroup() as outer:
        inner.to_task(name="inner", node="a")
        Task("sleep 600", node="b")

    with pytest.raises(TaskFailedError, match="task 'a/inner' on node 'a' failed: ended with code 1"):
        session.run(outer, timeout_s=TIMEOUT_S)

    found = [int(line.split()[1]) for line in notes(tmp_path) if line.startswith("pid ")]
    assert len(found) == 4
    assert not [pid for pid in found if is_running(pid)]


def test_a_nested_group_that_is_stopped_lets_its_tasks_end_within_the_grace(tmp_path: Path) -> None:
    wait = "trap 'echo told >> $NOTES/notes; exit 3' TERM; echo ready >> $NOTES/notes; while :; do sleep 0.01; done"
    fail = "until grep -q ready $NOTES/notes 2>/dev/null; do sleep 0.01; done; exit 7"
    with TaskGroup() as inner:
        Task(["sh", "-c", wait])
    with TaskGroup() as outer:
        inner.to_task(name="inner")
        Task(["sh", "-c", fail])

    with pytest.raises(TaskFailedError, match="ended with code 7"):
        LocalSession(environment={"NOTES": str(tmp_path)}, grace_s=20.0).run(outer, timeout_s=TIMEOUT_S)

    assert notes(tmp_path) == ["ready", "told"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_nodes_that_ask_for_cores_share_none(tmp_path: Path) -> None:
    """Here: a cluster counts cores, and says to nobody which ones."""
    session = SESSIONS["local"](tmp_path)
    with TaskGroup() as group:
        for node in ("a", "b"):
            with Node(node, cpus=1):
                Task(steps.report_cores)
        cores = final_output(["cores-of-a", "cores-of-b"])

    session.run(group, timeout_s=TIMEOUT_S)

    (a,), (b,) = cores.fetch()
    assert {a, b} <= os.sched_getaffinity(0)
    assert a != b


def test_setups_of_group_node_and_task_are_objects_and_run_around_each_other(
    session: GroupSession, tmp_path: Path
) -> None:
    with TaskGroup() as group, Node("n"):
        group.group_setup(steps.Marks("group"))
        group.node_setup(steps.Marks("node"))
        Task(functools.partial(steps.note, "work"), setup=steps.Marks("task"), instance_setup=steps.Marks("instance"))

    session.run(group, timeout_s=TIMEOUT_S)

    inwards = ["group", "node", "task", "instance"]
    assert notes(tmp_path) == [
        *(f"{name} set up" for name in inwards), "work", *(f"{name} left" for name in reversed(inwards)),
    ]  # fmt: skip


def test_reports_of_a_task_end_with_it_and_before_its_exit_steps(session: GroupSession, tmp_path: Path) -> None:
    wait = "until [ $(grep -c 'report of 1' $NOTES/notes) -ge 2 ]; do sleep 0.01; done; echo ended >> $NOTES/notes"
    with TaskGroup() as group:
        exits = SetupSteps(
            before=[functools.partial(steps.note, "begins")], after=[functools.partial(steps.note, "left")]
        )
        task = Task(["sh", "-c", wait], num_instances=2, setup=exits)
        task.report_step(steps.report_rank, interval_ms=10, per_instance=True)
        task.report_step(steps.report_rank, interval_ms=600_000)

    session.run(group, timeout_s=TIMEOUT_S)

    found = notes(tmp_path)
    assert found[-1] == "left"
    last_end = len(found) - 1 - found[::-1].index("ended")
    assert set(found[last_end + 1 : -1]) == {"report of 0", "report of 1", "report of all"}  # each once more
    assert found.count("report of all") == 1
    assert {"report of 0", "report of 1"} <= set(found)
