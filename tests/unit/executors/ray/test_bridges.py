"""When the Ray executor ends a bridge."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tuner_service.dispatcher.commands import AgentLost
from tuner_service.dispatcher.room import Room
from tuner_service.executor_options import OWN_CLUSTER, RayOptions
from tuner_service.executors.ray.executor import LOST_MARGIN_S, WAITING, RayExecutor
from tuner_service.executors.ray.local_cluster import USERS
from tuner_service.service.node_tokens import PREFIX


class Bridge:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.kills = 0

    def send(self, frame: dict[str, Any]) -> None:
        self.told.append(frame["address"])

    def listen(self) -> None:
        """It says nothing."""

    def kill(self) -> None:
        self.kills += 1


class OwnCluster:
    """``at``: where it is; "" while there is none."""

    def __init__(self) -> None:
        self.at = ""

    def see_to_it(self) -> None:
        """Somebody does."""

    def address(self) -> str:
        return self.at


def items(count: int) -> list[dict[str, Any]]:
    """So many nodes that Ray drains, as a bridge tells of them."""
    shape = {"cpus": 1, "gpus": 0, "memory_bytes": 0}
    rest = {"pool": "", "size": 1, "shape": shape, "phase": "running", "reason": "", "host": "", "ray_node": ""}
    names = [f"{PREFIX}{number}" for number in range(count)]
    return [{"agent": name, "group": name, "draining": 30.0, **rest} for name in names]


def an_executor(folder: Path, options: RayOptions, submitted: list[Any] | None = None) -> RayExecutor:
    """``submitted``: where its commands go."""

    def submit(command: Any) -> Future[None]:
        if submitted is not None:
            submitted.append(command)
        return Future()

    return RayExecutor(folder=folder, options=options, lineage="l", key=str, submit=submit, now=lambda: 1.0)


def test_a_bridge_to_a_cluster_of_ours_that_is_gone_ends_as_soon_as_there_is_another_one() -> None:
    bridge, cluster = Bridge(), OwnCluster()
    executor = an_executor(Path(), RayOptions(address=OWN_CLUSTER))
    executor._cluster, executor._bridge = cluster, bridge  # type: ignore[assignment]  # neither has processes
    for at in ("", "h:1", "h:1", "", "h:1"):
        cluster.at = at
        executor._see_to_bridge(0.0)
    assert (bridge.told, bridge.kills) == (["h:1"], 0)

    cluster.at = "h:2"
    executor._see_to_bridge(0.0)

    assert (bridge.told, bridge.kills) == (["h:1"], 1)


class Machine:
    """``error``: why no process of it can be started; bridges begin where there is none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.begun: list[float] = []
        self.now = 0.0
        monkeypatch.setattr("tuner_service.executors.ray.executor.BridgeLink", self._begin)

    def _begin(self, **_: Any) -> Bridge:
        self.begun.append(self.now)
        if self.error is not None:
            raise self.error
        return Bridge()

    def step(self, executor: RayExecutor, at: float) -> None:
        self.now = at
        executor._step(at)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


NO_PYTHON = FileNotFoundError(2, "No such file or directory", "/opt/venv/bin/python")
TOLD = "the bridge to Ray cannot be started: [Errno 2] No such file or directory: '/opt/venv/bin/python'"


def test_a_bridge_that_cannot_be_started_is_told_and_tried_less_and_less_often(machine: Machine) -> None:
    machine.error = NO_PYTHON
    executor = an_executor(Path(), RayOptions())
    for quarters in range(40):
        machine.step(executor, quarters / 4)

    assert executor.readiness() == TOLD
    assert machine.begun == [0.0, 0.5, 1.5, 3.5, 7.5]


def test_what_kept_a_bridge_from_starting_is_no_longer_told_of_one_that_connects(machine: Machine) -> None:
    machine.error = NO_PYTHON
    executor = an_executor(Path(), RayOptions())
    machine.step(executor, 0.0)
    assert executor.readiness() == TOLD

    machine.error = None
    machine.step(executor, 1.0)

    assert executor.readiness() == WAITING


def test_trials_on_nodes_that_nobody_sees_are_lost_also_where_no_bridge_can_be_started(machine: Machine) -> None:
    machine.error = NO_PYTHON
    submitted: list[Any] = []
    executor = an_executor(Path(), RayOptions(), submitted)
    executor._room = Room(lacking={}, waits=False, busy=frozenset({f"{PREFIX}1"}), connected=frozenset())

    machine.step(executor, 1.0)
    machine.step(executor, 1.0 + executor.options.service_lost_s + LOST_MARGIN_S)

    assert [(type(one), one.agent_id) for one in submitted] == [(AgentLost, f"{PREFIX}1")]


def test_a_cluster_of_ours_that_cannot_be_started_is_told_and_keeps_no_bridge_from_beginning(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / USERS).mkdir()
    executor = an_executor(tmp_path, RayOptions(address=OWN_CLUSTER))

    machine.step(executor, 0.0)

    assert executor.readiness() == f"a Ray cluster cannot be started: [Errno 21] Is a directory: '{tmp_path / USERS}'"
    assert machine.begun == [0.0]


def test_a_service_that_ends_waits_for_a_runner_that_is_stuck_only_once(machine: Machine) -> None:
    """Its executor is at a step with many nodes to give back when it is closed."""
    submitted: list[Any] = []
    executor = an_executor(Path(), RayOptions(), submitted)

    class Stuck(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            assert timeout is not None
            executor._closing = True
            raise TimeoutError

    def submit(command: Any) -> Future[None]:
        submitted.append(command)
        return Stuck()

    executor.submit = submit
    machine.step(executor, 1.0)
    executor._on_frame({"kind": "nodes", "items": items(5), "lost": []})
    machine.step(executor, 2.0)

    assert len(submitted) == 1
