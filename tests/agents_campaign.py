"""A deterministic search on three agents, again and again, while nodes die, networks fail and agents are drained.

Each agent has a home and an address of its own. Every round must end with the rows of a search that nobody disturbed.

    python -m tests.agents_campaign --rounds 10 --seed 1
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.harness import Home
from tests.disturbed_agents import LOST_TIMEOUT_S, NAMES, PATIENCE_S, Nodes, begin, completed, cut_off, three_nodes
from tests.joined_agents import service_without_own_agent
from tests.network_proxy import Network
from tests.rounds import run_by_command
from tests.waiting import wait_until

BRIEFLY_S = LOST_TIMEOUT_S / 4
PAUSE_S = 3.0  # at most, between two disturbances


def the_agent_is_killed(nodes: Nodes, name: str) -> None:
    """Its trials run on, and the next agent adopts them."""
    nodes[name].agent.kill()
    nodes[name].agent.start()
    nodes.wait_until_ready(name)


def the_machine_dies(nodes: Nodes, name: str) -> None:
    nodes[name].die()
    nodes.wait_until_given_up(name)
    nodes[name].agent.start()
    nodes.wait_until_ready(name)


def the_machine_is_started_again_at_once(nodes: Nodes, name: str) -> None:
    nodes[name].die()
    nodes[name].agent.start()
    nodes.wait_until_ready(name)


def the_network_is_cut_for_long(nodes: Nodes, name: str) -> None:
    cut_off(nodes, name, Network.CUT)


def the_network_is_silent_for_long(nodes: Nodes, name: str) -> None:
    """Nobody is told: each side finds it out by itself."""
    cut_off(nodes, name, Network.SILENT)


def the_network_is_cut_briefly(nodes: Nodes, name: str) -> None:
    nodes[name].network.become(Network.CUT)
    time.sleep(BRIEFLY_S)
    nodes[name].network.become(Network.WHOLE)
    nodes.wait_until_ready(name)


def it_is_drained(nodes: Nodes, name: str) -> None:
    nodes.home.tuner("agent", "drain", name)
    wait_until(lambda: nodes.seen()[name]["state"] == "drained", timeout_s=PATIENCE_S)
    nodes.home.tuner("agent", "drain", name, "--cancel")


def all_are_cut_off_for_long(nodes: Nodes, name: str) -> None:
    del name
    for one in NAMES:
        nodes[one].network.become(Network.CUT)
    for one in NAMES:
        nodes.wait_until_given_up(one)
    for one in NAMES:
        nodes[one].network.become(Network.WHOLE)
    for one in NAMES:
        nodes.wait_until_ready(one)


DISTURBANCES: tuple[Callable[[Nodes, str], None], ...] = (
    the_agent_is_killed,
    the_machine_dies,
    the_machine_is_started_again_at_once,
    the_network_is_cut_for_long,
    the_network_is_silent_for_long,
    the_network_is_cut_briefly,
    it_is_drained,
    all_are_cut_off_for_long,
)


def run(*, rounds: int, trials: int, seed: int) -> tuple[Counter[str], list[int]]:
    """What was done how often, and the rounds whose rows differ."""
    rng, done, differ = random.Random(seed), Counter[str](), list[int]()
    folder = Path(tempfile.mkdtemp(prefix="tuner-agents-"))
    home = Home(folder=folder, environment={"TUNER_SERVICE_LOST_TIMEOUT": f"{LOST_TIMEOUT_S:g}s"})
    try:
        with service_without_own_agent(home), three_nodes(home) as nodes:
            begin(home, trials=trials, deterministic=True)
            completed(home)
            undisturbed = home.rows()
            for number in range(1, rounds + 1):
                began = time.monotonic()
                begin(home, trials=trials, deterministic=True)
                told = Counter[str]()
                while home.show()["status"] == "running":
                    time.sleep(rng.uniform(0, PAUSE_S))
                    disturbance = rng.choice(DISTURBANCES)
                    disturbance(nodes, rng.choice(NAMES))
                    told[disturbance.__name__] += 1
                completed(home)
                is_equal = home.rows() == undisturbed
                attempts = sum(trial["attempts"] for trial in home.trials())
                if not is_equal:
                    differ.append(number)
                done += told
                said = "the same rows" if is_equal else "DIFFERENT ROWS"
                took = time.monotonic() - began
                print(f"round {number}: {said}, {attempts} attempts, {took:.0f} s, {dict(told)}", flush=True)
    finally:
        home.end()
    if not differ:
        shutil.rmtree(folder)
    return done, differ


def main() -> int:
    return run_by_command(run, prog="python -m tests.agents_campaign", about=__doc__, all_well="the same rows")


if __name__ == "__main__":
    sys.exit(main())
