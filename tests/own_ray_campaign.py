"""The Ray cluster that a service starts for itself: each of its parts is killed once, while trials run on it.

Two trials at a time wait before a step of theirs; one part after the other is killed, in an order of chance, and each
time both trials have to come to that step again: on a new cluster, or on the one that went on without that part. In
the end the rows are those of a search that nobody disturbed, and of no cluster anything is left.

    python -m tests.own_ray_campaign --seed 1
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.harness import Home
from tests.disturbed_agents import begin
from tests.disturbed_ray import COMES_S, DisturbedNodes, executor, ready, undisturbed_rows
from tests.process_table import processes
from tests.rounds import campaign_parser
from tests.waiting import wait_until

TRIALS, NODES = 6, 2
GONE_S = 90.0
HELD_STEP = 3  # the last that a trial reports before it waits
# What a part of the cluster has in its command line.
PARTS: Mapping[str, str] = {
    "raylet": "/raylet/raylet",
    "head": "gcs_server",
    "keeper": "processes/keeper.py",
    "holder": "executors.ray.local_cluster",
}
NODES_GO_ON = {
    "bridge": DisturbedNodes.the_bridge_is_killed,
    "service": DisturbedNodes.the_service_is_killed,
    "agent": DisturbedNodes.an_agent_is_killed,
    "actor": DisturbedNodes.an_actor_is_killed,  # its node does not, and another one comes on the same cluster
}


def place_of(home: Home) -> str:
    """Where the files of its cluster are."""
    return (home.home / "ray" / "place").read_text()


def of_cluster(home: Home, place: str) -> dict[int, str]:
    """Command lines of the processes that belong to the cluster of ``place``, or to what holds any."""
    names = (place, str(home.home / "ray"))
    words = {pid: " ".join(found) for pid, found in processes() if pid != os.getpid()}
    return {pid: line for pid, line in words.items() if any(name in line for name in names)}


def kill_part(on: DisturbedNodes, word: str) -> None:
    """Another cluster comes, and nothing of this one is left."""
    place = place_of(on.home)
    found = [pid for pid, line in of_cluster(on.home, place).items() if word in line]
    assert found, f"no process of the cluster has {word} in its command line"
    for pid in found:
        on.kill(pid)
    wait_until(lambda: place_of(on.home) != place, timeout_s=COMES_S)
    on.is_connected()
    wait_until(lambda: not [pid for pid, words in processes() if place in " ".join(words)], timeout_s=GONE_S)


def wait_for_trials(on: DisturbedNodes) -> None:
    def running() -> list[dict[str, Any]]:
        found = on.home.show()["running"]
        return [a for a in found if a["pid"] and a["step"] is not None and a["step"] >= HELD_STEP]

    ready(on.home, NODES)
    wait_until(lambda: len(running()) == NODES, timeout_s=COMES_S)


def run(folder: Path, seed: int) -> None:
    """AssertionError where something is lost, or left."""
    here, there = folder / "here", folder / "own"
    here.mkdir()
    there.mkdir()
    expected = undisturbed_rows(here, trials=TRIALS, HELD="yes")
    home = Home(folder=there, environment={"TUNER_EXECUTOR": executor("local")})
    on = DisturbedNodes(home=home)
    victims = [*PARTS, *NODES_GO_ON]
    random.Random(seed).shuffle(victims)
    try:
        begin(home, trials=TRIALS, deterministic=True, cpus=1, HELD="yes")
        wait_for_trials(on)
        for victim in victims:
            began = time.monotonic()
            if victim in PARTS:
                kill_part(on, PARTS[victim])
            else:
                NODES_GO_ON[victim](on)
            wait_for_trials(on)
            print(f"{victim} killed: trials run again after {time.monotonic() - began:.0f} s", flush=True)
        home.open_gate()
        on.completed()
        assert home.rows() == expected, "other rows"
        attempts = sum(trial["attempts"] for trial in home.trials())
        place = place_of(home)
    finally:
        home.end()
    wait_until(lambda: not of_cluster(home, place), timeout_s=GONE_S)
    print(f"{len(victims)} parts killed: the same rows, {attempts} attempts, nothing left")


def main() -> int:
    options = campaign_parser("python -m tests.own_ray_campaign", __doc__).parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tuner-own-ray-"))
    run(folder, options.seed)
    shutil.rmtree(folder)
    print(f"load after: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
