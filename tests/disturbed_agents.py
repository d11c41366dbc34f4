"""A search on three agents, each on an address and in a home of its own, whose nodes and networks fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.acceptance.harness import Home
from tests.joined_agents import JoinedAgent, end_processes_of, joined
from tests.network_proxy import Network, NetworkProxy, network_to
from tests.waiting import wait_until

LOST_TIMEOUT_S = 3.0
PATIENCE_S = 180.0
STEPS = 14
NAMES = ("n1", "n2", "n3")
# What it reports follows from its parameters alone; ``attempt`` is there where the rows need not be equal.
TRAIN = """
import hashlib, os, time
import trials

def unit(*parts):
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big") / 2**48

with trials.init() as trial:
    lr, width = trial.parameters["lr"], trial.parameters["width"]
    state = trial.restore()
    level = abs(lr - 0.01) * 10 + width / 100
    more = {"attempt": trial.attempt} if os.environ.get("TELLS_ATTEMPT") else {}
    for step in range(state["step"] + 1 if state else 0, STEPS):
        time.sleep(0.1 + 0.2 * unit(lr, "pace"))
        while step == 4 and os.environ.get("HELD") and not os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
        trial.report(step=step, loss=level + 1 / (step + 1) + 0.05 * unit(lr, step), **more)
        if step % 3 == 2:
            trial.save_checkpoint({"step": step}, step=step)
        if trial.should_stop() and not os.environ.get("IS_DEAF"):
            break
    else:
        trial.report_final(loss=level + unit(lr, "end") * 0.01)
""".replace("STEPS", str(STEPS))


@dataclass(kw_only=True)
class Node:
    name: str
    agent: JoinedAgent
    network: NetworkProxy

    def die(self) -> None:
        """The machine: its agent, and all that runs there."""
        self.agent.kill()
        end_processes_of(self.agent.home)


class Nodes:
    """By name."""

    def __init__(self, home: Home, nodes: dict[str, Node]) -> None:
        self.home, self._nodes = home, nodes

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def seen(self) -> dict[str, dict[str, Any]]:
        with self.home.service() as service:
            return {node["id"]: node for node in service.agents()}

    def busy(self) -> list[str]:
        """Those with trials of the search that has reported."""
        return [name for name, node in self.seen().items() if node["trials"] and node["state"] != "away"]

    def wait_until_ready(self, name: str) -> None:
        wait_until(lambda: self.seen().get(name, {}).get("state") == "ready", timeout_s=PATIENCE_S)

    def wait_until_given_up(self, name: str) -> None:
        """Nothing is believed to run there."""
        wait_until(lambda: name not in self.seen(), timeout_s=PATIENCE_S)

    def wait_until_rid_of_what_was_given_up(self, name: str) -> None:
        """The agent has come to the end of all that it held, and was told to forget it."""
        live = self._nodes[name].agent.home / "agent" / "live"
        mine = {trial.rpartition("/")[2] for trial in self.seen().get(name, {}).get("trials", ())}
        wait_until(lambda: len(list(live.glob("*"))) <= max(len(mine), 1), timeout_s=PATIENCE_S)


@contextmanager
def three_nodes(home: Home) -> Iterator[Nodes]:
    """Of the service that runs; the n-th agent reaches it by 127.0.0.n+1."""
    address = urlsplit(json.loads((home.home / "service.json").read_text())["url"])
    with ExitStack() as stack:
        made: dict[str, Node] = {}
        for place, name in enumerate(NAMES, start=2):
            network = stack.enter_context(network_to(address.hostname or "", address.port or 0, at=f"127.0.0.{place}"))
            agent = stack.enter_context(joined(home, name, "--cpus", "2", url=network.url))
            made[name] = Node(name=name, agent=agent, network=network)
        nodes = Nodes(home, made)
        for name in NAMES:
            nodes.wait_until_ready(name)
        yield nodes


def begin(
    home: Home, *, trials: int, deterministic: bool, cpus: int = 2, is_assessed: bool | None = None, **environment: str
) -> str:
    """Three trials at a time, each of more than half of a node. HELD: they wait before step 4 until the gate is opened,
    and none is stopped early, so that three of them wait there, unless ``is_assessed`` says otherwise."""
    if is_assessed is None:
        is_assessed = deterministic and "HELD" not in environment
    return home.begin(
        TRAIN,
        search_space={
            "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
            "width": {"type": "int", "low": 1, "high": 64},
        },
        tuner="tpe",
        budget={"trials": trials, "parallel": 3},
        deterministic=deterministic,
        trial={
            "environment": {"GATE": str(home.gate), **environment},
            "stop_grace": "2s",
            "max_attempts": 1,
            "resources": {"cpus": cpus},
        },
        **({"assessor": {"name": "median_stop", "args": {"min_trials": 2, "start_step": 1}}} if is_assessed else {}),
    )


def completed(home: Home) -> None:
    wait_until(lambda: home.show()["status"] not in {"created", "running", "stopping"}, timeout_s=PATIENCE_S)
    shown = home.show()
    assert shown["status"] == "completed", (shown["status"], shown["reason"], shown["message"], shown["detail"])


def cut_off(nodes: Nodes, name: str, network: Network) -> None:
    """For longer than the service waits; then the network is whole again."""
    nodes[name].network.become(network)
    nodes.wait_until_given_up(name)
    nodes[name].network.become(Network.WHOLE)
    nodes.wait_until_ready(name)
