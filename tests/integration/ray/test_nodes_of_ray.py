"""A search on a real Ray cluster: nodes come as they are needed, go when idle, and whatever is killed costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home, is_running
from tests.disturbed_agents import begin as begin_search
from tests.disturbed_ray import (
    COMES_S,
    CORES,
    RUNS_S,
    Disturbed,
    executor,
    nodes_in,
    provided,
    ready,
    undisturbed_rows,
)
from tests.integration.ray.conftest import HEAD_LOST_S
from tests.joined_agents import joined, served
from tests.ray_cluster import HEAD_LOST, RayCluster, needs_ray
from tests.waiting import wait_until

pytestmark = [needs_ray, pytest.mark.slow]
TRIALS = 6  # of the search that is disturbed
STEPS = """
import os, time, trials

with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, int(os.environ["STEPS"])):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        trial.save_checkpoint({"step": step}, step=step)
        while step == int(os.environ.get("HELD_STEP", -1)) and not os.path.exists(os.environ["GATE"]):
            if trial.should_stop():
                break
            time.sleep(0.02)
        if trial.should_stop():
            raise SystemExit(0)
    trial.report_final(loss=trial.parameters["x"])
print("the last line")
"""


@pytest.fixture
def search(tmp_path: Path, cluster: RayCluster) -> Iterator[Home]:
    variables = {"TUNER_EXECUTOR": executor(cluster.address), HEAD_LOST: str(HEAD_LOST_S)}
    home = Home(folder=tmp_path, environment=variables)
    try:
        yield home
    finally:
        home.end()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of the search of ``disturbed_agents`` on this machine."""
    return undisturbed_rows(tmp_path_factory.mktemp("undisturbed"), trials=TRIALS, HELD="yes")


def begin(search: Home, *, trials: int = 4, parallel: int = 2, steps: int = 60, held_step: int = -1) -> None:
    """Ten steps take a second. ``held_step``: where trials wait until the gate is opened, or they are told to stop."""
    environment = {"STEPS": str(steps), "HELD_STEP": str(held_step), "GATE": str(search.gate)}
    trial = {"resources": {"cpus": 1}, "environment": environment}
    search.begin(STEPS, budget={"trials": trials, "parallel": parallel}, trial=trial)


def running(search: Home, count: int, *, step: int = 0) -> None:
    """So many trials have come to that step: on nodes that may have to be brought first."""
    wait_until(
        lambda: (
            sum(bool(a["pid"]) and (-1 if a["step"] is None else a["step"]) >= step for a in search.show()["running"])
            >= count
        ),
        timeout_s=COMES_S,
    )


def completed(search: Home) -> dict[str, Any]:
    return wait_until(lambda: _if_completed(search), timeout_s=RUNS_S)


def _if_completed(search: Home) -> dict[str, Any] | None:
    found = search.show()
    assert found["status"] in {"created", "running", "stopping", "completed"}, (found["status"], found["message"])
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


def test_nodes_come_as_trials_wait_and_go_when_idle_down_to_the_least_and_what_they_alone_had_is_kept(
    search: Home, cluster: RayCluster
) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, min=1, idle="1s")
    begin(search, trials=2, steps=20, held_step=0)
    found = ready(search, 2)  # one alone would be done with them before a busy machine has brought the other
    search.open_gate()

    assert completed(search)["counts"] == {"succeeded": 2}
    assert {node["agent"] for node in found} >= agents_of(search)
    assert all(node["agent"].startswith("ray-") for node in found)
    is_told_once(search, steps=20)
    assert "ready" in search.tuner("ps", "--nodes")
    with search.service() as service:
        assert service.readiness()["parts"]["ray"] == "ok"

    wait_until(lambda: len(provided(search)["nodes"]) == 1, timeout_s=COMES_S)
    assert provided(search)["lost"] == []
    for number in (1, 2):
        assert "the last line" in search.tuner("logs", f"{search.id}/{number}")
        search.tuner("get", f"{search.id}/{number}", f"kept-{number}", "--checkpoint", "last")
        assert any((search.folder / f"kept-{number}").rglob("*"))


def test_a_search_whose_bridge_service_node_and_actor_are_killed_gives_the_rows_of_an_undisturbed_one(
    search: Home, cluster: RayCluster, undisturbed: list[dict[str, Any]]
) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, max=3)
    on = Disturbed(home=search, cluster=cluster, spare=cluster.add(CORES))
    begin_search(search, trials=TRIALS, deterministic=True, cpus=1, HELD="yes")  # each trial waits before its step 4
    before = {node["agent"] for node in ready(search, 3)}
    running(search, 3, step=3)
    on.the_bridge_is_killed()
    on.the_service_is_killed()
    ready(search, 3)
    assert agents_of(search) == before
    assert {trial["attempts"] for trial in search.trials() if trial["status"] == "running"} == {1}

    on.a_node_is_killed()
    lost = wait_until(lambda: provided(search)["lost"], timeout_s=COMES_S)
    wait_until(lambda: not {one["agent"] for one in lost} & agents_of(search))  # nothing of them runs on
    running(search, 3, step=3)
    on.an_actor_is_killed()
    running(search, 3, step=3)
    search.open_gate()
    on.completed()
    assert search.rows() == undisturbed
    given_back_and_not_made_again(search, cluster, lost=on.spare)


def given_back_and_not_made_again(search: Home, cluster: RayCluster, *, lost: int) -> None:
    """Of nodes that nobody needs, those on the node of the cluster that is lost: Ray would keep their room for them."""
    namespace = provided(search)["namespace"]
    before = left_of(cluster, namespace)
    cluster.kill(lost)
    try:
        after = wait_until(lambda: found if (found := left_of(cluster, namespace)) != before else None)
    except AssertionError as error:
        raise AssertionError(f"{cluster.left(namespace)}, and the service says {provided(search)}") from error
    assert after < before


def left_of(cluster: RayCluster, namespace: str) -> set[str]:
    return set(cluster.left(namespace)["groups"])


def test_trials_of_a_drained_node_save_and_go_on_elsewhere(search: Home, cluster: RayCluster) -> None:
    drained = cluster.add(2)
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, max=4)
    begin(search, trials=4, parallel=4, steps=20, held_step=3)
    ready(search, 4)
    running(search, 4, step=3)
    cluster.drain(drained, 60.0)

    told = wait_until(lambda: nodes_in(search, "draining"), timeout_s=COMES_S)
    gone = {node["agent"] for node in told}
    wait_until(lambda: not gone & {node["agent"] for node in provided(search)["nodes"]}, timeout_s=COMES_S)
    search.open_gate()
    completed(search)
    is_told_once(search, steps=20)
    assert provided(search)["lost"] == []


def test_what_the_cluster_has_no_room_for_is_told_with_why(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, cpus=64)
    begin(search)

    (pending,) = wait_until(lambda: nodes_in(search, "pending"), timeout_s=COMES_S)
    wait_until(lambda: "large enough" in nodes_in(search, "pending")[0]["reason"], timeout_s=COMES_S)
    assert pending["agent"] in search.tuner("ps", "--nodes")

    namespace = provided(search)["namespace"]
    search.kill_all("service")  # the bridge takes it back: an autoscaler would bring it for nobody
    wait_until(lambda: not cluster.left(namespace)["groups"], timeout_s=COMES_S)


def test_nothing_of_ours_is_left_on_a_foreign_cluster_after_the_service(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, service_lost_s=5.0)
    begin(search, trials=50)
    ready(search, 2)
    running(search, 2)
    pids = [agent["pid"] for agent in agents(search)]
    namespace = provided(search)["namespace"]
    search.kill_all("service")

    nothing = {"groups": [], "actors": []}
    wait_until(lambda: cluster.left(namespace) == nothing, timeout_s=90)
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def agents(search: Home) -> list[dict[str, Any]]:
    with search.service() as service:
        return service.agents()


def test_without_a_head_all_nodes_are_lost_and_when_the_cluster_is_back_the_search_goes_on(
    search: Home, cluster: RayCluster
) -> None:
    begin(search, steps=10, held_step=2)
    before = {node["agent"] for node in ready(search, 2)}
    running(search, 2, step=2)
    cluster.kill_head()
    wait_until(lambda: "Ray's head" in provided(search)["state"], timeout_s=COMES_S)
    wait_until(lambda: not cluster.has_raylets(), timeout_s=COMES_S)
    with search.service() as service:
        assert service.readiness()["parts"]["ray"] != "ok"
    cluster.begin_anew(2)
    search.open_gate()

    assert completed(search)["counts"] == {"succeeded": 4}
    assert not before & {node["agent"] for node in provided(search)["nodes"]}
    is_told_once(search, steps=10)


def test_agents_of_this_machine_joined_ones_and_rays_run_one_search(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.address, name="local,ray", min=1)
    with served(search), joined(search, "by-hand", "--cpus", "1"):
        ready(search, 1)
        wait_until(lambda: len(agents_of(search)) == 3, timeout_s=COMES_S)
        begin(search, trials=6, parallel=4, steps=30)
        assert completed(search)["counts"] == {"succeeded": 6}
        is_told_once(search, steps=30)
        used = {detail["agent"] for n in range(1, 7) for detail in search.trial(n)["attempt_details"]}
        assert len(used) == 3
        assert used == agents_of(search)


# Two processes that meet; the first one reports.
PAIR = """
import os, socket, time, trials

rank, at = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(at) as server:
        other = server.accept()[0]
else:
    for _ in range(600):
        try:
            other = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.1)
with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, 6):
        other.sendall(b".")
        assert other.recv(1) == b"."
        trial.report(step=step, loss=trial.parameters["x"])
        trial.save_checkpoint({"step": step}, step=step)
        while step == 3 and not os.path.exists(os.environ.get("GATE", os.curdir)):
            time.sleep(0.02)
    trial.report_final(loss=trial.parameters["x"])
"""


def test_the_parts_of_a_trial_run_on_different_nodes_of_the_cluster_and_end_together(
    search: Home, cluster: RayCluster
) -> None:
    lost = cluster.add(2)
    trial = {"resources": {"cpus": 1}, "nodes": 2, "stop_grace": "5s"}
    search.begin(PAIR, budget={"trials": 1, "parallel": 1}, trial=trial, executor={"name": "ray"})
    placed = {node["agent"]: node["ray_node"] for node in ready(search, 2)}
    assert len(set(placed.values())) == 2
    running(search, 1, step=3)
    cluster.kill(lost)
    cluster.add(2)
    wait_until(lambda: search.trial(1)["attempts"] >= 2, timeout_s=COMES_S)
    search.open_gate()

    assert completed(search)["counts"] == {"succeeded": 1}
    first, *others = search.trial(1)["attempt_details"]  # a node that takes long to be ready gives its part back
    assert {node["agent"] for node in first["nodes"]} == set(placed)
    assert not {node["agent"] for node in others[-1]["nodes"]} & set(placed)
    restored = [one["restored_step"] for one in others if one["restored_step"] is not None]
    assert (restored[0], others[-1]["restored_step"]) == (3, max(restored)), others
    is_told_once(search, steps=6)


def test_over_rays_client_an_experiment_has_nodes_that_it_describes_itself(search: Home, cluster: RayCluster) -> None:
    search.environment["TUNER_EXECUTOR"] = executor(cluster.clients_address)
    trial = {"resources": {"cpus": 2}, "environment": {"STEPS": "3"}, "pass_environment": ["OF_THE_NODE"]}
    own = {"name": "ray", "agents": {"cpus": 2}, "runtime_env": {"env_vars": {"OF_THE_NODE": "yes"}}}
    script = STEPS.replace("import os, time, trials", 'import os, time, trials; assert os.environ["OF_THE_NODE"]')
    search.begin(script, budget={"trials": 2, "parallel": 1}, trial=trial, executor=own)

    assert completed(search)["counts"] == {"succeeded": 2}
    assert provided(search)["resources"]["CPU"] >= 2
    (node,) = provided(search)["nodes"]
    assert node["cpus"] == 2
    assert search.show()["executor"] == own | {"agents": {"cpus": 2, "gpus": 0, "memory": 0}}
