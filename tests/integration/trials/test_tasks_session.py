"""Task groups on this machine, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.trials import tasks_steps as steps
from tests.integration.trials.fake_service import is_running
from tests.integration.trials.task_sessions import SESSIONS, variables
from tests.waiting import wait_until
from trials.tasks import (
    GroupSession,
    Node,
    NodeStartError,
    OutputMissingError,
    SetupSteps,
    Task,
    TaskFailedError,
    TaskGroup,
    WorkspaceType,
    distributed,
    final_output,
)
from trials.tasks.nodes import LocalNode
from trials.tasks.port import Placed, Wanted

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60.0


@pytest.fixture(params=sorted(SESSIONS))
def session(request: pytest.FixtureRequest, tmp_path: Path) -> GroupSession:
    return SESSIONS[request.param](tmp_path)


def notes(folder: Path) -> list[str]:
    file = folder / "notes"
    return file.read_text().splitlines() if file.exists() else []


def pids(folder: Path) -> list[int]:
    return [int(line.split()[1]) for line in notes(folder) if line.startswith("pid ")]


def test_a_group_of_a_task_without_a_step_runs(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as group:
        Task(name="nothing")
    session.run(group)
    with TaskGroup() as group:
        Task(name="only set up", setup=SetupSteps(before=[steps.set_up_task], after=[steps.leave_task]))
    session.run(group)

    assert notes(tmp_path) == ["task set up", "task left"]


def test_a_group_with_everything_runs_in_order_and_gives_its_outputs(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as group, Node("n"):
        group.node_setup(SetupSteps(before=[steps.set_up_node], after=[steps.leave_node]))
        group.report_step(steps.report, interval_ms=600_000)
        Task(
            steps.work,
            num_instances=2,
            setup=SetupSteps(before=[steps.set_up_task], after=[steps.leave_task]),
            instance_setup=SetupSteps(before=[steps.set_up_instance], after=[steps.leave_instance]),
        )
        ranks = final_output(["rank-0", "rank-1"])

    session.run(group, timeout_s=TIMEOUT_S)

    found = notes(tmp_path)
    assert found[:2] == ["node n set up", "task set up"]
    assert sorted(found[2:8]) == ["instance left"] * 2 + ["instance set up"] * 2 + ["rank 0 of 2", "rank 1 of 2"]
    assert found[8:] == ["task left", "report", "node n left"]
    assert ranks.fetch() == [{"rank": 0}, {"rank": 1}]
    assert list((tmp_path / "workspaces" / "n").iterdir()) == []


def test_commands_get_their_ranks_and_give_outputs_as_files(session: GroupSession) -> None:
    write = 'echo "[$RANK, $LOCAL_RANK, $WORLD_SIZE]" > $TASK_WORKSPACE/outputs/$RANK.json'
    with TaskGroup() as group, Node("n"):
        folder = Task("sh -c 'mkdir $TASK_WORKSPACE/outputs'")
        Task(["sh", "-c", write], num_instances=3, after=[folder])
    with group:
        ranks = final_output(["0", "1", "2"])

    session.run(group, timeout_s=TIMEOUT_S)

    assert ranks.fetch() == [[0, 0, 3], [1, 1, 3], [2, 2, 3]]


def test_report_steps_run_again_and_again_and_once_more_at_the_end(session: GroupSession, tmp_path: Path) -> None:
    wait = "until [ $(grep -c report $NOTES/notes) -ge 3 ]; do sleep 0.01; done; echo ended >> $NOTES/notes"
    with TaskGroup() as group:
        group.report_step(steps.report, interval_ms=20)
        Task(["sh", "-c", wait])

    session.run(group, timeout_s=TIMEOUT_S)

    assert notes(tmp_path).count("report") >= 4
    assert notes(tmp_path)[-1] == "report"


def test_processes_of_two_nodes_form_one_world_of_torch(session: GroupSession) -> None:
    pytest.importorskip("torch")
    with TaskGroup() as group:
        distributed(steps.sum_of_ranks, nodes=["a", "b"], processes_per_node=1)
        total = final_output("total")

    session.run(group, timeout_s=TIMEOUT_S)

    assert total.fetch() == 3


def test_learners_of_one_world_stop_at_the_same_step_and_the_first_saves(session: GroupSession) -> None:
    pytest.importorskip("torch")
    with TaskGroup() as group:
        distributed(steps.learn_until_one_is_asked, nodes=["n"], processes_per_node=2)
        found = final_output(["steps-of-0", "steps-of-1", "saved-by-0"])
        others = final_output("saved-by-1")

    with pytest.raises(OutputMissingError, match="saved-by-1"):
        session.run(group, timeout_s=TIMEOUT_S)
    assert found.fetch() == [3, 3, 3]
    assert others is not found


def test_a_global_workspace_is_there_for_the_next_group_and_a_private_one_is_not(
    session: GroupSession, tmp_path: Path
) -> None:
    counts = []
    for kind in (WorkspaceType.GLOBAL, WorkspaceType.GLOBAL, WorkspaceType.PRIVATE):
        with TaskGroup(workspace_type=kind) as group:
            Task(steps.remember)
            count = final_output("count")
        session.run(group, timeout_s=TIMEOUT_S)
        counts.append(count.fetch())

    assert counts == [1, 2, 1]
    assert [path.name for path in (tmp_path / "workspaces" / "local").iterdir()] == ["global"]


def test_the_first_failure_stops_all_nodes_and_leaves_nothing_running(session: GroupSession, tmp_path: Path) -> None:
    setup = SetupSteps(before=[steps.set_up_task], after=[steps.leave_task])
    with TaskGroup() as group:
        group.node_setup(SetupSteps(after=[steps.leave_node]))
        Task(steps.resist, node="a", setup=setup)
        Task(steps.resist, node="b")
        Task(steps.wait_then_fail, node="b")
        never = Task("touch never", node="a", after=group.tasks)
        result = final_output("x")

    with pytest.raises(TaskFailedError, match="task 'b/wait_then_fail' on node 'b' failed: ended with code 1"):
        session.run(group, timeout_s=TIMEOUT_S)

    assert len(pids(tmp_path)) == 4
    assert not [pid for pid in pids(tmp_path) if is_running(pid)]
    assert notes(tmp_path)[-3] == "task left"
    assert sorted(notes(tmp_path)[-2:]) == ["node a left", "node b left"]
    assert not Path("never").exists()
    assert never.name == "a/touch"
    with pytest.raises(OutputMissingError, match="it failed"):
        result.fetch()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda group: group.node_setup(SetupSteps(before=[steps.fail])), "a setup step on node 'local' failed"),
        (lambda group: group.report_step(steps.fail, interval_ms=1), "a report step on node 'local' failed"),
        (lambda group: Task("no-such-program"), "cannot start 'no-such-program': No such file"),
        (lambda group: Task("sh -c 'kill -9 $$'"), "task 'local/sh' on node 'local' failed: ended with signal 9"),
        (lambda group: Task("sh -c 'exit 3'", num_instances=2), r"instance [01] of task .* ended with code 3"),
        (
            lambda group: Task("true", instance_setup=SetupSteps(before=["sh -c 'exit 7'"])),
            "task 'local/true' on node 'local' failed: ended with code 7",
        ),
        (
            lambda group: Task("true", setup=SetupSteps(after=[steps.fail])),
            "an exit step of task 'local/true' on node 'local' failed",
        ),
    ],
)
def test_whatever_fails_is_named(session: GroupSession, make: object, message: str) -> None:
    with TaskGroup() as group:
        make(group)  # type: ignore[operator]  # each is a function of the group
        Task("sleep 600")

    with pytest.raises(TaskFailedError, match=message):
        session.run(group, timeout_s=TIMEOUT_S)


def test_a_group_that_takes_too_long_is_stopped(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as group:
        Task("sleep 600")

    with pytest.raises(TimeoutError, match="it waited for task 'local/sleep'"):
        session.run(group, timeout_s=0.3)
    assert list((tmp_path / "workspaces" / "local").iterdir()) == []


def test_all_nodes_begin_or_none_does(session: GroupSession, tmp_path: Path) -> None:
    (tmp_path / "workspaces").mkdir()
    (tmp_path / "workspaces" / "b").write_text("in the way")
    with TaskGroup() as group:
        Task(f"touch {tmp_path}/began", node="a")
        Task("true", node="b")

    with pytest.raises(NodeStartError, match="node 'b' cannot be made ready, so no node begins"):
        session.run(group, timeout_s=TIMEOUT_S)
    assert not (tmp_path / "began").exists()


def test_a_runner_that_is_killed_ends_its_group(session: GroupSession, tmp_path: Path) -> None:
    kill_runner = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()"
    with TaskGroup() as group:
        Task([sys.executable, "-c", kill_runner], node="a")
        Task("sleep 600", node="b")

    with pytest.raises(TaskFailedError, match="the runner on node 'a' failed: it ended with -9"):
        session.run(group, timeout_s=TIMEOUT_S)


def test_an_output_nobody_gave_is_named(session: GroupSession) -> None:
    with TaskGroup() as group, Node("n"):
        Task("true")
        final_output("accuracy")

    with pytest.raises(OutputMissingError, match="no task of node 'n' gave the output accuracy"):
        session.run(group, timeout_s=TIMEOUT_S)


def test_a_step_that_exits_well_ends_no_step_beside_or_after_it(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as group, Node("n"):
        group.node_setup(SetupSteps(before=[steps.exit_well, steps.set_up_node]))
        group.report_step(steps.exit_well, interval_ms=1)
        Task(steps.report, instance_setup=SetupSteps(before=[steps.exit_well], after=[steps.leave_instance]))
    session.run(group, timeout_s=TIMEOUT_S)

    assert notes(tmp_path) == ["node n set up", "report", "instance left"]
    with TaskGroup() as group:
        Task(steps.exit_badly)
    with pytest.raises(TaskFailedError, match="ended with code 1"):
        session.run(group, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("where", ["task", "setup", "report"])
def test_a_step_that_leaves_with_code_0_before_the_steps_have_ended_has_failed(
    session: GroupSession, tmp_path: Path, where: str
) -> None:
    """Whoever says os._exit(0), or has a library that does, may have done anything or nothing."""
    with TaskGroup() as group, Node("n"):
        if where == "setup":
            group.node_setup(SetupSteps(before=[steps.leave_at_once, steps.set_up_node]))
        if where == "report":
            group.report_step(steps.leave_at_once, interval_ms=1)
        step = steps.leave_at_once if where == "task" else steps.set_up_task
        Task(step, instance_setup=SetupSteps(after=[steps.leave_instance]), name="it")

    with pytest.raises(TaskFailedError, match="left with code 0 before its steps had ended") as told:
        session.run(group, timeout_s=TIMEOUT_S)

    assert told.value.code == 0
    what = {"task": "task 'n/it'", "setup": "a setup step", "report": "a report step"}[where]
    assert (told.value.what, told.value.node) == (what, "n")
    if where == "task":
        assert notes(tmp_path) == []


def test_a_step_may_close_all_descriptors_and_use_their_numbers(session: GroupSession, tmp_path: Path) -> None:
    with TaskGroup() as group, Node("n"):
        Task(steps.take_all_descriptors, instance_setup=SetupSteps(after=[steps.leave_instance]))
    session.run(group, timeout_s=TIMEOUT_S)

    assert notes(tmp_path) == ["instance left"]
    assert (tmp_path / "mine").read_bytes() == b""


def test_a_session_that_does_not_wait_for_a_long_grace_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    node = LocalNode(tmp_path / "workspaces", environment=os.environ)
    node.lines.order(Placed().order(Wanted(name="n")))
    resisting = [sys.executable, "-c", "from tests.integration.trials import tasks_steps; tasks_steps.resist()"]
    instances = [{"command": resisting, "environment": {}}]
    node.lines.order({"do": "run", "job": "task:resisting", "instances": instances})
    wait_until(lambda: len(pids(tmp_path)) == 2)
    node.lines.order({"do": "stop", "grace_s": 1000.0})
    node.close()

    assert node._process.returncode == 0
    assert not [pid for pid in pids(tmp_path) if is_running(pid)]


def test_what_a_task_has_left_behind_takes_no_process_s_place_once_it_ends(
    session: GroupSession, tmp_path: Path
) -> None:
    with TaskGroup() as group, Node("n"):
        leaving = Task(["sh", "-c", "true & echo pid $! >> $NOTES/notes"])
        Task(steps.nothing_is_left_of_the_noted, after=[leaving])
    session.run(group, timeout_s=TIMEOUT_S)


def test_functions_of_a_script_run_and_nothing_is_left_when_the_script_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        from tests.integration.trials import tasks_steps
        from trials.tasks import LocalSession, Task, TaskGroup

        def of_the_script():
            tasks_steps.note("of the script")

        if __name__ == "__main__":
            with TaskGroup() as group:
                first = Task(of_the_script)
                Task(tasks_steps.resist, after=[first])
            LocalSession("workspaces").run(group)
        """)
    )
    (tmp_path / "temporary").mkdir()
    own = {"PYTHONPATH": str(ROOT), "NOTES": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    environment = {**os.environ, **own}
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=environment) as script:
        try:
            wait_until(lambda: len(pids(tmp_path)) == 2)
        finally:
            script.send_signal(signal.SIGKILL)

    assert notes(tmp_path)[0] == "of the script"
    wait_until(lambda: not [pid for pid in pids(tmp_path) if is_running(pid)])
    for folder in (tmp_path / "workspaces" / "local", tmp_path / "temporary"):
        wait_until(lambda folder=folder: not list(folder.iterdir()))
