"""A real Ray cluster of the tests' own on this machine: a head without room, and as many raylets as a test asks for.

It lives in a process of its own, below a keeper: nothing of it outlives the test, however that ends. Without Ray the
tests that need one are skipped, and say how to install it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.wire.programs import KEEPER

INSTALL = "pip install -c constraints.txt 'tuner-service[ray]'"
OBJECT_STORE_BYTES = 80 << 20
END_S = 60
HEAD_LOST, CLIENTS = "RAY_gcs_rpc_server_reconnect_timeout_s", "TESTS_RAY_CLIENTS"
# Our nodes take no worker that Ray starts ahead of tasks: they have a runtime environment. Ray asks five times before
# it believes that a node is dead; one that answers late, and not at all, has ten seconds each time.
QUICK = {
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "300",
}
OURS = "tuner-"  # what the names of our placement groups begin with
ROOT = Path(__file__).resolve().parent.parent

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=f"needs Ray: {INSTALL}")


class RayCluster:
    """``address`` is what a driver connects to. Nodes are counted from 0, in the order in which they were added."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        said = self._answer()
        self.address, self.clients_address = str(said["address"]), str(said["clients"])

    def add(self, cpus: int) -> int:
        return int(self._do("add", cpus)["node"])

    def kill(self, node: int) -> None:
        """SIGKILL for its raylet, which takes its workers along."""
        self._do("kill", node)

    def drain(self, node: int, seconds: float) -> None:
        """As a cloud does that takes a machine back: Ray is told, and how long there is."""
        self._do("drain", node, seconds)

    def kill_head(self) -> None:
        """SIGKILL for the process that knows everything of the cluster."""
        self._do("kill_head")

    def begin_anew(self, *cpus: int) -> None:
        """End what is left, and have a cluster of such nodes at the same address, as whoever minds one would."""
        self._do("begin_anew", list(cpus))

    def has_raylets(self) -> bool:
        """Whether any of its nodes runs."""
        return bool(self._do("raylets")["count"])

    def count(self) -> int:
        """Of the nodes that were added until now."""
        return int(self._do("count")["count"])

    def clear(self, kept: int) -> None:
        """Have the first ``kept`` nodes only, and nothing of ours on them."""
        self._do("clear", kept)

    def left(self, namespace: str) -> dict[str, list[str]]:
        """Placement groups and actors of that namespace."""
        found = self._do("left", namespace)
        return {"groups": found["groups"], "actors": found["actors"]}

    def _do(self, *order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                assert "error" not in answer, answer
                return answer
        raise AssertionError("the process of the cluster has ended")


@contextmanager
def ray_cluster(*cpus: int, head_lost_s: int = 60, clients: bool = False) -> Iterator[RayCluster]:
    """A head, and a node with each of those numbers of cores.

    ``head_lost_s``: how long nodes live without it. ``clients``: there is a server for ``ray://``, too.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-ray-test-") as folder:
        keeper = [sys.executable, "-I", "-S", str(KEEPER), "--unbounded", "5", f"{folder}/kept", "0"]
        process = subprocess.Popen(
            [*keeper, sys.executable, "-m", "tests.ray_cluster"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, **QUICK, HEAD_LOST: str(head_lost_s), CLIENTS: "1" if clients else ""},
            text=True,
        )
        try:
            cluster = RayCluster(process)
            for count in cpus:
                cluster.add(count)
            yield cluster
        finally:
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            process.wait(END_S)
            process.stdout.close()  # type: ignore[union-attr]  # likewise


# ── the process of the cluster ──────────────────────────────────────────────────────────────────
def main() -> None:
    import time

    import ray
    from ray._raylet import GcsClient
    from ray.cluster_utils import Cluster
    from ray.core.generated import autoscaler_pb2

    small = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    head = {"num_cpus": 0, **small, "gcs_server_port": _free_port(), "include_log_monitor": False, "no_monitor": True}
    if os.environ[CLIENTS]:
        head["ray_client_server_port"] = _free_port()
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: list[Any] = []

    def do(order: str, *what: Any) -> dict[str, Any]:
        nonlocal cluster, nodes
        match order:
            case "add":
                nodes.append(cluster.add_node(num_cpus=what[0], object_store_memory=OBJECT_STORE_BYTES))
                return {"node": len(nodes) - 1}
            case "kill":
                nodes[what[0]].kill_raylet(check_alive=False)
            case "drain":
                reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
                deadline_ms = int((time.time() + what[1]) * 1000)
                client = GcsClient(address=cluster.address)
                client.drain_node(nodes[what[0]].node_id, reason, "the machine is taken back", deadline_ms)
            case "kill_head":
                cluster.head_node.kill_gcs_server(check_alive=False)
            case "begin_anew":
                for node in [*nodes, cluster.head_node]:
                    node.kill_all_processes(check_alive=False, allow_graceful=False)
                cluster = Cluster(initialize_head=True, head_node_args=head)
                nodes = [cluster.add_node(num_cpus=count, object_store_memory=OBJECT_STORE_BYTES) for count in what[0]]
            case "raylets":
                return {"count": sum(_has_raylet(node) for node in nodes)}
            case "count":
                return {"count": len(nodes)}
            case "clear":
                gone = nodes[what[0] :]
                del nodes[what[0] :]
                for node in gone:
                    node.kill_all_processes(check_alive=False, allow_graceful=False)
                _wait_for_the_end_of(cluster, {node.node_id for node in gone})
                _remove_ours(cluster.address)
            case "left":
                ray.init(address=cluster.address, namespace=what[0], log_to_driver=False)
                groups = [
                    str(table["name"])
                    for table in ray.util.placement_group_table().values()
                    if table["state"] != "REMOVED" and str(table["name"]).startswith(what[0])
                ]
                actors = list(ray.util.list_named_actors())
                ray.shutdown()
                return {"groups": groups, "actors": actors}
        return {}

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    clients = f"ray://127.0.0.1:{head['ray_client_server_port']}" if os.environ[CLIENTS] else ""
    say({"address": cluster.address, "clients": clients})
    for line in sys.stdin:
        try:
            say(do(*json.loads(line)))
        except Exception as error:  # noqa: BLE001  # told to the test, which fails with it
            say({"error": repr(error)})
    cluster.shutdown()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
    return port


def _wait_for_the_end_of(cluster: Any, nodes: set[str]) -> None:
    """Until Ray knows it, and places nothing there."""
    wait_until(lambda: not nodes & {one["NodeID"] for one in cluster.global_state.node_table() if one["Alive"]})


def _remove_ours(address: str) -> None:
    """Also where Ray has moved it from a node that died, and nobody of its service is left."""
    import ray
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    ray.init(address=address, log_to_driver=False)
    for name, table in placement_group_table().items():
        if table["state"] != "REMOVED" and str(table["name"]).startswith(OURS):
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(name)))
    ray.shutdown()


def _has_raylet(node: Any) -> bool:
    return any(kind == "raylet" for kind, _ in node.live_processes())


if __name__ == "__main__":
    main()
