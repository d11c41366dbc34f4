"""The sessions that one suite of task groups is run on: a function for each, of a folder for notes and workspaces.

A new kind of session is one more entry: `test_tasks_session.py` and `test_tasks_nested.py` run on all of them, and
`trials/tasks/port.py` says what its nodes have to do. Sessions on a real Ray cluster take part where TESTS_TASKS_ON_RAY
is set: every group starts processes of Ray's there. `tests/integration/ray` always has some of them.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.ray_cluster import ray_cluster
from trials.tasks import GroupSession, LocalSession, RaySession, Task, TaskGroup, TrialSession
from trials.tasks.meeting import Place
from trials.tasks.shares import Machine
from trials.tasks.trial_nodes import host

ROOT = Path(__file__).parents[3]
GRACE_S = 0.3


def local(folder: Path) -> GroupSession:
    return LocalSession(folder / "workspaces", environment=variables(folder), grace_s=GRACE_S)


def variables(folder: Path) -> dict[str, str]:
    return {"NOTES": str(folder), "PYTHONPATH": str(ROOT)}


# ── of a trial of two nodes ─────────────────────────────────────────────────────────────────────
class TwoNodes(TrialSession):
    """Node 0 is this process; that of node 1 comes with each run, and hosts what is placed on it."""

    def run(self, group: TaskGroup | Task, *, timeout_s: float | None = None) -> None:
        with another_node(self._folder, self._place):
            super().run(group, timeout_s=timeout_s)


@contextmanager
def another_node(folder: Path | None, place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A process on node 1 of the trial, which has ended when the block does, as the group has."""
    command = [sys.executable, "-m", "tests.integration.trials.task_sessions", str(folder or "")]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **world(1, port=place.port)}) as process:
        try:
            yield process
        finally:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def world(node: int, *, port: int) -> dict[str, str]:
    """What an agent would set."""
    return {
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "RANK": str(node),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TUNER_WORLD_KEY": "known to both",
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def of_a_trial(folder: Path) -> GroupSession:
    return TwoNodes(
        folder / "workspaces",
        environment=variables(folder),
        grace_s=GRACE_S,
        environ={**os.environ, **world(0, port=free_port())},
    )


def on_ray(folder: Path) -> GroupSession:
    return RaySession(_address(), folder=folder / "workspaces", environment=variables(folder), grace_s=GRACE_S)


@cache
def _address() -> str:
    """Of one cluster of two nodes for all tests of this process."""
    made = ray_cluster(4, 4)
    cluster = made.__enter__()
    atexit.register(made.__exit__, None, None, None)
    return cluster.address


SESSIONS: dict[str, Callable[[Path], GroupSession]] = {"local": local, "of a trial of two nodes": of_a_trial}
if os.environ.get("TESTS_TASKS_ON_RAY"):
    SESSIONS["ray"] = on_ray


def main(arguments: list[str]) -> None:
    machine = Machine.here({}, name="node 1 of the trial")
    result = host(Place.of(os.environ), Path(arguments[0]) if arguments[0] else None, machine=machine, timeout_s=60)
    sys.exit(0 if "outputs" in result else 3)


if __name__ == "__main__":
    main(sys.argv[1:])
