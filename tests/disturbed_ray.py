"""A search on a real Ray cluster of which something is killed: what each disturbance does, and when it is over."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.harness import Home
from tests.disturbed_agents import begin, completed
from tests.process_table import parent
from tests.ray_cluster import RayCluster
from tests.waiting import wait_until

COMES_S = 120.0  # for what takes Ray some seconds on a machine that has nothing else to do
RUNS_S = 300.0
CORES = 2  # of each node of the cluster
DRAIN_S = 30.0
SERVICE_LOST_S = 20.0


def executor(address: str, *, name: str = "ray", service_lost_s: float = SERVICE_LOST_S, **agents: Any) -> str:
    """As the setting takes it: nodes of one core, two at most."""
    table = {"cpus": 1, "max": 2, "idle": "1h"} | agents
    return json.dumps({"name": name, "address": address, "agents": table, "service_lost": f"{service_lost_s:g}s"})


def provided(home: Home) -> dict[str, Any]:
    """What the service tells of its Ray nodes."""
    with home.service() as service:
        (found,) = service.call("GET", "/api/v1/executors").json()["items"]
    return found


def nodes_in(home: Home, state: str) -> list[dict[str, Any]]:
    return [node for node in provided(home)["nodes"] if node["state"] == state]


def ready(home: Home, count: int) -> list[dict[str, Any]]:
    """So many nodes, as soon as they are there."""
    return wait_until(lambda: found if len(found := nodes_in(home, "ready")) == count else [], timeout_s=COMES_S)


def actor_of(agent: dict[str, Any]) -> int:
    """The process of Ray's: above its keeper, which is above what holds the agent."""
    return parent(parent(parent(int(agent["pid"]))))


@dataclass(kw_only=True)
class DisturbedNodes:
    """A search on nodes of any cluster; what can be done to the nodes, and to who minds them."""

    home: Home

    def agents(self) -> list[dict[str, Any]]:
        with self.home.service() as service:
            return [agent for agent in service.agents() if agent["state"] == "ready"]

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    # ── disturbances: each returns when the service has dealt with it ───────────────────────────
    def the_bridge_is_killed(self) -> None:
        killed = wait_until(lambda: provided(self.home)["bridge_pid"], timeout_s=COMES_S)
        self.kill(killed)
        wait_until(lambda: provided(self.home)["bridge_pid"] not in {None, killed}, timeout_s=COMES_S)
        self.is_connected()

    def the_service_is_killed(self) -> None:
        self.home.kill_all("service")
        self.home.tuner("resume", self.home.id, check=False)  # it may have ended meanwhile
        self.is_connected()

    def an_actor_is_killed(self) -> None:
        for agent in self.agents()[:1]:
            self.kill(actor_of(agent))
            wait_until(lambda: agent["id"] not in {a["id"] for a in self.agents()}, timeout_s=COMES_S)  # noqa: B023

    def an_agent_is_killed(self) -> None:
        for agent in self.agents()[:1]:
            self.kill(int(agent["pid"]))

    def is_connected(self) -> None:
        wait_until(lambda: provided(self.home)["state"] == "ok", timeout_s=COMES_S)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────
    def completed(self) -> dict[str, Any]:
        wait_until(lambda: self.home.show()["status"] not in {"created", "running", "stopping"}, timeout_s=RUNS_S)
        shown = self.home.show()
        assert shown["status"] == "completed", (shown["status"], shown["reason"], shown["message"], shown["detail"])
        return shown


@dataclass(kw_only=True)
class Disturbed(DisturbedNodes):
    """On a cluster of the test's own. ``spare``: a node of it that is killed and drained; another takes its place."""

    cluster: RayCluster
    spare: int

    def a_node_is_killed(self) -> None:
        self.cluster.kill(self.spare)
        self.spare = self.cluster.add(CORES)

    def a_node_is_drained(self) -> None:
        self.cluster.drain(self.spare, DRAIN_S)
        gone, self.spare = self.spare, self.cluster.add(CORES)
        self.is_connected()
        wait_until(lambda: not nodes_in(self.home, "draining"), timeout_s=COMES_S)
        self.cluster.kill(gone)


KINDS = (
    Disturbed.the_bridge_is_killed,
    Disturbed.the_service_is_killed,
    Disturbed.a_node_is_killed,
    Disturbed.a_node_is_drained,
    Disturbed.an_actor_is_killed,
    Disturbed.an_agent_is_killed,
)


def reports_of(home: Home) -> set[str]:
    """Every stored report as text; one that is there twice is an AssertionError."""
    found: set[str] = set()
    for trial in home.trials():
        for report in trial["metrics"]:
            text = json.dumps([trial["number"], report["attempt"], report["step"], report["values"]])
            assert text not in found, f"a report is stored twice: {text}"
            found.add(text)
    return found


def undisturbed_rows(folder: Path, *, trials: int, **environment: str) -> list[dict[str, Any]]:
    """Of the same deterministic search on agents of this machine, where nothing is held."""
    home = Home(folder=folder)
    home.open_gate()
    try:
        begin(home, trials=trials, deterministic=True, cpus=1, **environment)
        completed(home)
        return home.rows()
    finally:
        home.end()
