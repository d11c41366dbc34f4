"""The same example as a script of ours, on nodes of the same cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ray.cluster import RayCluster
from benchmarks.resume.__main__ import SCRIPT as STEPS_SCRIPT
from benchmarks.resume.__main__ import STEP_S, STEPS, events, search
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row
from tuner_service.client import Client

COMES_S = 120.0
SERVICE_LOST = "15s"  # within this a killed service is resumed here, and after it the cluster is free again
SCRIPT = """import time; began = time.time()
import trials


def objective(x, a, b):
    return a * (x**2) + b


with trials.init() as trial:
    for x in range(20):
        score = objective(x, trial.parameters["a"], trial.parameters["b"])
        trial.report(step=x, score=score)
with open({times!r}, "a") as file:
    file.write(f"{{began!r}} {{time.time()!r}}\\n")
"""


def experiment(trials: int, parallel: int, **more: Any) -> dict[str, Any]:
    unit = {"type": "float", "low": 0, "high": 1}
    return {
        "name": "example",
        "seed": 1,
        "objective": {"metric": "score"},
        "search_space": {"a": unit, "b": unit},
        "tuner": {"name": "random"},
        "budget": {"trials": trials, "parallel": parallel},
        "trial": {"code": "code", "command": "python script.py", "final": "last", "resources": {"cpus": 1}},
        **more,
    }


@contextmanager
def connected(cluster: RayCluster, *, cores: int, nodes: int) -> Iterator[Service]:
    """A service whose bridge has reached the cluster, and that has no agent yet."""
    agents = {"cpus": cores, "max": nodes, "idle": "1h"}
    executor = {"name": "ray", "address": cluster.address, "agents": agents, "service_lost": SERVICE_LOST}
    with ExitStack() as stack:
        made = stack.enter_context(service(TUNER_EXECUTOR=json.dumps(executor)))
        command = [str(Path(sys.executable).with_name("tuner")), "serve"]
        null = subprocess.DEVNULL
        served = subprocess.Popen(command, env=made.environment, stdin=null, stdout=null, stderr=null)
        stack.callback(_ended, served)
        wait_for((made.home / "service.json").exists, "the service to start", patience_s=COMES_S)
        wait_for(lambda: _is_connected(made), "the bridge to reach the cluster", patience_s=COMES_S)
        yield made


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def _is_connected(made: Service) -> bool:
    client = Client(made.address()["url"], (made.home / "token").read_text(encoding="utf-8").strip())
    try:
        (executor,) = client.call("GET", "/api/v1/executors").json()["items"]
    finally:
        client.close()
    return bool(executor["state"] == "ok")


def example(cluster: RayCluster, *, trials: int, cores: int, nodes: int, times: Path) -> Row:
    """From the command to the end of the last trial, by the trials' own clocks."""
    with connected(cluster, cores=cores, nodes=nodes) as made:
        file = made.write(experiment(trials, cores * nodes), SCRIPT.format(times=str(times)))
        began_at, begun = time.time(), time.perf_counter()
        made.tuner("run", str(file))
        return {"began_at": began_at, "whole_s": time.perf_counter() - begun}


def first_trial_s(cluster: RayCluster, *, cores: int, times: Path) -> float:
    """From ``tuner start`` to the first line of the first trial's code: node, agent and trial are started for it."""
    with connected(cluster, cores=cores, nodes=1) as made:
        file = made.write(experiment(1, 1), SCRIPT.format(times=str(times)))
        began_at = time.time()
        made.tuner("start", str(file))
        wait_for(lambda: times.exists() and bool(times.read_text(encoding="utf-8")), "a trial", patience_s=COMES_S)
        return float(times.read_text(encoding="utf-8").split()[0]) - began_at


def resumed(cluster: RayCluster, *, trials: int, cores: int, nodes: int, killed: bool) -> Row:
    """As ``benchmarks.resume``: service, bridge and workers are killed half-way. The nodes go on meanwhile."""
    x = {"type": "float", "low": 0, "high": 1}
    with connected(cluster, cores=cores, nodes=nodes) as made:
        log, tuner = made.folder / "log", str(Path(sys.executable).with_name("tuner"))
        trial = {"code": "code", "command": "python script.py", "resources": {"cpus": 1}}
        body = experiment(trials, cores * nodes, search_space={"x": x}, objective={"metric": "loss"}, trial=trial)
        file = made.write(body, STEPS_SCRIPT.format(log=str(log), steps=STEPS, step_s=STEP_S))
        if not killed:
            made.tuner("run", str(file))
            return {"before": events(log)}
        return search([tuner, "run", str(file)], [tuner, "resume", "@last", "--wait"], log, trials=trials, home=made)
