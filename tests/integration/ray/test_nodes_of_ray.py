"""A search on a real Ray cluster: nodes come as they are needed, go when idle, and whatever is killed costs nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home, is_running
from tests.ray_cluster import RayCluster, needs_ray, ray_cluster
from tests.waiting import wait_until

pytestmark = [needs_ray, pytest.mark.slow]
COMES_S = 120.0  # for what takes Ray some seconds on a machine that has nothing else to do
RUNS_S = 180.0
STEPS = """
import os, time, trials

with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, int(os.environ["STEPS"])):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        trial.save_checkpoint({"step": step}, step=step)
        if trial.should_stop():
            raise SystemExit(0)
    trial.report_final(loss=trial.parameters["x"])
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Nodes that a test kills it adds itself."""
    with ray_cluster(2) as found:
        yield found


@pytest.fixture
def search(tmp_path: Path, cluster: RayCluster) -> Iterator[Home]:
    home = Home(folder=tmp_path, environment={"TUNER_EXECUTOR": executor(cluster)})
    try:
        yield home
    finally:
        home.end()


def executor(cluster: RayCluster, **agents: Any) -> str:
    table = {"cpus": 1, "max": 2, "idle": "1h"} | agents
    return json.dumps({"name": "ray", "address": cluster.address, "agents": table, "service_lost": "20s"})


def provided(search: Home) -> dict[str, Any]:
    with search.service() as service:
        (found,) = service.call("GET", "/api/v1/executors").json()["items"]
    return found


def nodes(search: Home, state: str) -> list[dict[str, Any]]:
    return [node for node in provided(search)["nodes"] if node["state"] == state]


def begin(search: Home, *, trials: int = 4, parallel: int = 2, steps: int = 60) -> None:
    """Ten steps take a second."""
    trial = {"resources": {"cpus": 1}, "environment": {"STEPS": str(steps)}}
    search.begin(STEPS, budget={"trials": trials, "parallel": parallel}, trial=trial)


def completed(search: Home) -> dict[str, Any]:
    return wait_until(lambda: _if_completed(search), timeout_s=RUNS_S)


def _if_completed(search: Home) -> dict[str, Any] | None:
    found = search.show()
    return found if found["status"] == "completed" else None


def is_told_once(search: Home, *, steps: int = 60) -> None:
    """Every trial has reported each step, and none has failed: one that is charged an attempt has none left."""
    for trial in search.trials():
        assert trial["status"] == "succeeded"
        assert sorted({report["step"] for report in trial["metrics"] if report["step"] is not None}) == list(
            range(steps)
        )


def agents_of(search: Home) -> set[str]:
    with search.service() as service:
        return {agent["id"] for agent in service.agents()}


def test_nodes_come_as_trials_wait_and_the_search_runs_on_them(search: Home) -> None:
    begin(search)
    ready = wait_until(lambda: len(nodes(search, "ready")) == 2 and nodes(search, "ready"), timeout_s=COMES_S)

    assert completed(search)["counts"] == {"succeeded": 4}
    assert agents_of(search) == {node["agent"] for node in ready}
    assert all(node["agent"].startswith("ray-") for node in ready)
    is_told_once(search)
    assert "ready" in search.tuner("ps", "--nodes")
    with search.service() as service:
        assert service.readiness()["parts"]["ray"] == "ok"


def test_a_killed_bridge_finds_its_nodes_again(search: Home) -> None:
    begin(search)
    before = wait_until(lambda: len(nodes(search, "ready")) == 2 and nodes(search, "ready"), timeout_s=COMES_S)
    killed = provided(search)["bridge_pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: provided(search)["bridge_pid"] not in {None, killed}, timeout_s=COMES_S)
    after = wait_until(lambda: len(nodes(search, "ready")) == 2 and nodes(search, "ready"), timeout_s=COMES_S)

    assert {node["agent"] for node in after} == {node["agent"] for node in before}
    completed(search)
    is_told_once(search)
    assert {trial["attempts"] for trial in search.trials()} == {1}


def test_a_killed_service_finds_its_nodes_and_their_trials_again(search: Home) -> None:
    begin(search)
    wait_until(lambda: len(nodes(search, "ready")) == 2, timeout_s=COMES_S)
    search.running(2, step=2)
    before = agents_of(search)
    search.kill_all("service")
    search.serve()
    wait_until(lambda: len(nodes(search, "ready")) == 2, timeout_s=COMES_S)

    assert agents_of(search) == before
    completed(search)
    is_told_once(search)
    assert {trial["attempts"] for trial in search.trials()} == {1}


def test_trials_of_a_killed_node_go_on_elsewhere_from_their_checkpoints(search: Home, cluster: RayCluster) -> None:
    lost = cluster.add(2)
    search.environment["TUNER_EXECUTOR"] = executor(cluster, max=4)
    begin(search, trials=4, parallel=4, steps=300)
    wait_until(lambda: len(nodes(search, "ready")) == 4, timeout_s=COMES_S)
    search.running(4, step=5)
    cluster.kill(lost)

    wait_until(lambda: len(provided(search)["lost"]) == 2, timeout_s=COMES_S)
    completed(search)
    is_told_once(search, steps=300)
    assert sum(trial["attempts"] == 2 for trial in search.trials()) in {1, 2}


def test_trials_of_a_drained_node_save_and_go_on_elsewhere(search: Home, cluster: RayCluster) -> None:
    drained = cluster.add(2)
    search.environment["TUNER_EXECUTOR"] = executor(cluster, max=4)
    begin(search, trials=4, parallel=4, steps=300)
    wait_until(lambda: len(nodes(search, "ready")) == 4, timeout_s=COMES_S)
    search.running(4, step=3)
    cluster.drain(drained, 60.0)

    told = wait_until(lambda: nodes(search, "draining"), timeout_s=COMES_S)
    completed(search)
    is_told_once(search, steps=300)
    assert not {node["agent"] for node in told} & {node["agent"] for node in provided(search)["nodes"]}
    assert provided(search)["lost"] == []
    cluster.kill(drained)


def test_idle_nodes_are_given_back_down_to_the_least(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster, min=1, idle="1s")
    begin(search, trials=2)
    completed(search)

    wait_until(lambda: len(provided(search)["nodes"]) == 1, timeout_s=COMES_S)
    assert provided(search)["lost"] == []


def test_what_the_cluster_has_no_room_for_is_told_with_why(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster, cpus=64)
    begin(search)

    (pending,) = wait_until(lambda: nodes(search, "pending"), timeout_s=COMES_S)
    wait_until(lambda: "large enough" in nodes(search, "pending")[0]["reason"], timeout_s=COMES_S)
    assert pending["agent"] in search.tuner("ps", "--nodes")


def test_nothing_of_ours_is_left_on_a_foreign_cluster_after_the_service(search: Home, cluster: RayCluster) -> None:
    begin(search, trials=50)
    wait_until(lambda: len(nodes(search, "ready")) == 2, timeout_s=COMES_S)
    search.running(2)
    pids = [agent["pid"] for agent in agents(search)]
    namespace = provided(search)["namespace"]
    search.kill_all("service")

    nothing = {"groups": [], "actors": []}
    wait_until(lambda: cluster.left(namespace) == nothing, timeout_s=90)
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def agents(search: Home) -> list[dict[str, Any]]:
    with search.service() as service:
        return service.agents()
