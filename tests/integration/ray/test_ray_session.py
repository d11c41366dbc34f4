"""Task groups on a real Ray cluster. The whole suite of sessions runs on one, too: make ray-tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.trials import tasks_steps as steps
from tests.integration.trials.fake_service import is_running
from tests.integration.trials.task_sessions import GRACE_S, ROOT, variables
from tests.ray_cluster import RayCluster, needs_ray
from tests.waiting import wait_until
from trials.tasks import Node, RaySession, SetupSteps, Task, TaskFailedError, TaskGroup, final_output

pytestmark = [needs_ray, pytest.mark.slow]
TIMEOUT_S = 120.0
WHERE = "mkdir -p $TASK_WORKSPACE/outputs; echo $RAY_RAYLET_PID > $TASK_WORKSPACE/outputs/where-$RANK.json"


@pytest.fixture(scope="module")
def address(whole_cluster: RayCluster) -> Iterator[str]:
    """Of the cluster with a second node, as long as this module needs it."""
    before = whole_cluster.count()
    whole_cluster.add(2)
    yield whole_cluster.address
    whole_cluster.clear(before)


@pytest.fixture
def session(address: str, tmp_path: Path) -> Iterator[RaySession]:
    import ray

    yield RaySession(
        address,
        folder=tmp_path / "workspaces",
        environment=variables(tmp_path),
        grace_s=GRACE_S,
        start_timeout_s=TIMEOUT_S,
    )
    ray.shutdown()


def notes(folder: Path) -> list[str]:
    file = folder / "notes"
    return file.read_text().splitlines() if file.exists() else []


def test_nodes_are_apart_and_steps_reports_and_outputs_are_as_in_a_local_session(
    session: RaySession, tmp_path: Path
) -> None:
    with TaskGroup() as group:
        for name in ("a", "b"):
            with Node(name, cpus=1):
                Task(["sh", "-c", WHERE], world="w", name=f"find-{name}")
        with Node("a"):
            group.node_setup(SetupSteps(before=[steps.set_up_node], after=[steps.leave_node]))
            group.report_step(steps.report, interval_ms=600_000)
        where = final_output(["where-0", "where-1"])

    session.run(group, timeout_s=TIMEOUT_S)

    first, second = where.fetch()
    assert first != second  # each by the raylet above it
    assert notes(tmp_path) == ["node a set up", "report", "node a left"]


def test_a_failure_on_one_node_stops_the_other_and_what_nobody_has_is_refused_by_name(session: RaySession) -> None:
    with TaskGroup() as group:
        with Node("a"):
            Task("sleep 1000")
        with Node("b"):
            Task(["sh", "-c", "exit 3"], name="fails")
    with pytest.raises(TaskFailedError, match="b/fails") as failure:
        session.run(group, timeout_s=TIMEOUT_S)
    assert failure.value.code == 3

    with TaskGroup() as large, Node("large", cpus=64):
        Task("true")
    with pytest.raises(ValueError, match="'large' wants 64 CPU"):
        session.run(large)


def test_a_killed_driver_leaves_nothing_running_and_a_killed_runner_ends_its_group(
    address: str, session: RaySession, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(f"""
        import pathlib
        from trials.tasks import Node, RaySession, Task, TaskGroup

        if __name__ == "__main__":
            with TaskGroup() as group:
                for name in ("a", "b"):
                    with Node(name):
                        Task(["sh", "-c", "echo $$ > {tmp_path}/$TASK_NODE; sleep 1000"])
            RaySession("{address}").run(group)
        """)
    )
    driver = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    files = [tmp_path / name for name in ("a", "b")]
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files), timeout_s=TIMEOUT_S)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(is_running(int(file.read_text())) for file in files))

    with TaskGroup() as group, Node("c"):
        Task(["sh", "-c", "kill -9 $PPID; sleep 1000"])
    with pytest.raises(TaskFailedError, match="the runner on node 'c'"):
        session.run(group, timeout_s=TIMEOUT_S)
