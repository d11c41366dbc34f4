"""A Ray cluster on this machine: a head without room, and nodes. It lives until its standard input is closed.

    python -m benchmarks.ray.cluster NODES CORES

It says its address in a line of JSON. For each line on the standard input it says how many cores are free.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.service import wait_for
from trials.wire.programs import KEEPER

ROOT = Path(__file__).resolve().parents[2]
OBJECT_STORE_BYTES = 80 << 20
END_S = 60
FREE_S = 90.0  # for nodes that nobody needs any more to be given back


class RayCluster:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = str(self._answer()["address"])

    def wait_until_free(self, cores: int) -> None:
        """Until nobody holds any of its cores, so that the next one to be measured finds them all."""
        wait_for(lambda: self._free() >= cores, "the cluster's cores to be free", patience_s=FREE_S, poll_s=0.5)

    def _free(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._answer()["free"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("the cluster has ended")


@contextmanager
def ray_cluster(*, nodes: int, cores: int) -> Iterator[RayCluster]:
    """Nothing of it is left afterwards, however that comes: it is kept."""
    with TemporaryDirectory(prefix="tuner-ray-bench-") as folder:
        keeper = [sys.executable, "-I", "-S", str(KEEPER), "--unbounded", "5", f"{folder}/kept", "0"]
        process = subprocess.Popen(
            [*keeper, sys.executable, "-m", "benchmarks.ray.cluster", str(nodes), str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            text=True,
        )
        try:
            yield RayCluster(process)
        finally:
            with suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            process.wait(END_S)


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    nodes, cores = map(int, sys.argv[1:])
    small = {"object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
    for _ in range(nodes):
        cluster.add_node(num_cpus=cores, **small)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    print(json.dumps({"address": cluster.address}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"free": ray.available_resources().get("CPU", 0.0)}), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
