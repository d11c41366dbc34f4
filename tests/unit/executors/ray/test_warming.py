"""On which nodes of a cluster a process of Ray's waits for ours."""

from __future__ import annotations

from typing import Any

from tuner_service.executors.ray.warming import NODES_MAX, without


def a_node(name: str, *, alive: bool = True, cpus: float = 2.0) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": {"CPU": cpus, "memory": 1.0} if cpus else {"memory": 1.0}}


def test_one_waits_on_each_node_that_can_run_trials_once() -> None:
    nodes = [a_node("head", cpus=0), a_node("a"), a_node("gone", alive=False), a_node("b")]

    assert without(nodes, ()) == ["a", "b"]
    assert without(nodes, {"a"}) == ["b"]


def test_a_large_cluster_is_left_alone_but_for_a_few_nodes() -> None:
    nodes = [a_node(str(number)) for number in range(2 * NODES_MAX)]
    first = without(nodes, ())

    assert len(first) == NODES_MAX
    assert without(nodes, set(first)) == []
