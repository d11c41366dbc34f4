"""When the Ray executor ends a bridge."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tuner_service.dispatcher.commands import AgentLost
from tuner_service.dispatcher.room import Room
from tuner_service.executor_options import OWN_CLUSTER, RayOptions
from tuner_service.executors.ray.executor import (
    LOST_MARGIN_S,
    NO_NODES_S,
    SILENT_S,
    STEP_S,
    WAITING,
    RayExecutor,
)
from tuner_service.executors.ray.local_cluster import USERS
from tuner_service.service.node_tokens import PREFIX


class Bridge:
    pid = 1

    def __init__(self) -> None:
        self.told: list[str] = []
        self.kills = 0

    def send(self, frame: dict[str, Any]) -> None:
        self.told.append(frame["address"])

    def send_rest(self) -> None:
        """There is none."""

    def listen(self) -> None:
        """It says nothing."""

    def kill(self) -> None:
        self.kills += 1

    def end(self) -> None:
        """It has no process."""


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
        self.bridges: list[Bridge] = []
        self.now = 0.0
        monkeypatch.setattr("tuner_service.executors.ray.executor.BridgeLink", self._begin)

    def _begin(self, **_: Any) -> Bridge:
        self.begun.append(self.now)
        if self.error is not None:
            raise self.error
        self.bridges.append(Bridge())
        return self.bridges[-1]

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


# ── one that neither ends nor says anything ─────────────────────────────────────────────────────
NODES = {"kind": "nodes", "items": [], "lost": []}
HEAD_IS_AWAY = {"kind": "trouble", "message": "Ray's head at h:1 has not answered for 5 s; what runs goes on"}


class Connected:
    """An executor with a bridge that was told where the cluster is; ``says`` is said with each step."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.executor, self.at = machine, an_executor(Path(), RayOptions(address="h:1")), 0.0
        self.pass_time(0.0)

    @property
    def bridge(self) -> Bridge:
        return self.machine.bridges[-1]

    def pass_time(self, seconds: float, *, says: dict[str, Any] | None = None) -> None:
        until = self.at + seconds
        while True:
            if says is not None:
                self.executor._on_frame(says)
            self.machine.step(self.executor, self.at)
            if self.at >= until:
                return
            self.at += STEP_S


@pytest.fixture
def connected(machine: Machine) -> Connected:
    return Connected(machine)


def test_a_bridge_that_was_connected_and_says_nothing_any_more_is_replaced_and_people_are_told(
    connected: Connected,
) -> None:
    connected.pass_time(1.0, says=NODES)
    connected.pass_time(SILENT_S - STEP_S)
    assert (connected.bridge.kills, connected.executor.readiness()) == (0, "ok")

    connected.pass_time(3 * STEP_S)
    assert connected.bridge.kills == 1
    assert connected.executor.readiness() == (
        f"the bridge to Ray has not said for {SILENT_S:.0f} s what exists; another one is started"
    )


def test_a_bridge_that_has_only_troubles_to_tell_is_left_alone_for_longer(connected: Connected) -> None:
    """Ray's library waits for a head that restarts, and its watch says so; one that never ends waiting is replaced."""
    connected.pass_time(1.0, says=NODES)
    connected.pass_time(NO_NODES_S - STEP_S, says=HEAD_IS_AWAY)
    assert connected.bridge.kills == 0

    connected.pass_time(3 * STEP_S, says=HEAD_IS_AWAY)

    assert connected.bridge.kills == 1


def test_a_bridge_that_connects_may_be_silent_for_longer_but_not_for_ever(connected: Connected) -> None:
    connected.pass_time(NO_NODES_S)
    assert connected.bridge.kills == 0

    connected.pass_time(3 * STEP_S)

    assert connected.bridge.kills == 1


def test_a_bridge_that_speaks_is_not_replaced(connected: Connected) -> None:
    connected.pass_time(2 * NO_NODES_S, says=NODES)

    assert (connected.bridge.kills, connected.executor.readiness()) == (0, "ok")


def test_a_service_that_was_stopped_itself_blames_no_bridge(connected: Connected) -> None:
    connected.pass_time(1.0, says=NODES)
    connected.at += 10 * NO_NODES_S
    connected.pass_time(1.0)

    assert connected.bridge.kills == 0


def test_a_bridge_without_a_cluster_of_ours_to_connect_to_waits_as_long_as_it_takes(machine: Machine) -> None:
    executor = an_executor(Path(), RayOptions(address=OWN_CLUSTER))
    executor._cluster = OwnCluster()  # type: ignore[assignment]  # without processes
    for second in range(int(2 * NO_NODES_S)):
        machine.step(executor, float(second))

    assert machine.bridges[0].kills == 0


def test_a_bridge_that_nobody_can_listen_to_for_want_of_a_thread_is_ended_and_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Bridge] = []

    def listen(self: Bridge) -> None:
        raise RuntimeError("can't start new thread")

    def end(self: Bridge) -> None:
        ended.append(self)

    monkeypatch.setattr(Bridge, "listen", listen)
    monkeypatch.setattr(Bridge, "end", end)
    executor = an_executor(Path(), RayOptions())
    for at in (0.0, 1.0):
        machine.step(executor, at)

    assert ended == machine.bridges
    assert len(machine.begun) == 2
    assert executor.readiness() == "the bridge to Ray cannot be started: can't start new thread"
