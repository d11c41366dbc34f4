"""A search on a real Ray cluster of several nodes, again and again, while whatever it rests on is killed.

Nodes of the cluster are killed and drained, and so are the bridge, the service, actors and agents. With
``deterministic: true`` every round ends with the rows of a search on this machine that nobody disturbed; every second
round is without it: then nothing acknowledged is lost, and nothing is there twice.

    python -m tests.ray_campaign --rounds 10 --seed 1
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.harness import Home
from tests.disturbed_agents import begin
from tests.disturbed_ray import CORES, KINDS, Disturbed, executor, reports_of, undisturbed_rows
from tests.ray_cluster import ray_cluster
from tests.rounds import run_by_command

PAUSE_S = 6.0  # at most, between two disturbances


@contextmanager
def search_on_ray(folder: Path) -> Iterator[Disturbed]:
    """A home whose service has nodes of a cluster of three, of which one is there to be killed."""
    with ray_cluster(CORES, CORES) as cluster:
        home = Home(folder=folder, environment={"TUNER_EXECUTOR": executor(cluster.address, max=3)})
        try:
            yield Disturbed(home=home, cluster=cluster, spare=cluster.add(CORES))
        finally:
            home.end()


def one_round(on: Disturbed, rng: random.Random, *, trials: int, deterministic: bool) -> Counter[str]:
    """Until the search has ended; what was done how often."""
    told, known = Counter[str](), set[str]()
    begin(on.home, trials=trials, deterministic=deterministic, cpus=1)
    while on.home.show()["status"] == "running":
        time.sleep(rng.uniform(0, PAUSE_S))
        known |= reports_of(on.home)
        disturbance = rng.choice(KINDS)
        disturbance(on)
        told[disturbance.__name__] += 1
    on.completed()
    lost = known - reports_of(on.home)
    assert not lost, f"acknowledged, and lost: {sorted(lost)}"
    assert {trial["status"] for trial in on.home.trials()} <= {"succeeded", "early_stopped"}
    return told


def run(*, rounds: int, trials: int, seed: int) -> tuple[Counter[str], list[int]]:
    """What was done how often, and the rounds whose rows differ."""
    rng, done, differ = random.Random(seed), Counter[str](), list[int]()
    folder = Path(tempfile.mkdtemp(prefix="tuner-ray-campaign-"))
    here, there = folder / "here", folder / "ray"
    here.mkdir()
    there.mkdir()
    expected = undisturbed_rows(here, trials=trials)
    with search_on_ray(there) as on:
        for number in range(1, rounds + 1):
            began, deterministic = time.monotonic(), bool(number % 2)
            told = one_round(on, rng, trials=trials, deterministic=deterministic)
            said = "nothing lost, nothing twice"
            if deterministic:
                is_equal = on.home.rows() == expected
                said = "the same rows" if is_equal else "DIFFERENT ROWS"
                differ += [] if is_equal else [number]
            attempts = sum(trial["attempts"] for trial in on.home.trials())
            done += told
            took = time.monotonic() - began
            print(f"round {number}: {said}, {attempts} attempts, {took:.0f} s, {dict(told)}", flush=True)
    if not differ:
        shutil.rmtree(folder)
    return done, differ


def main() -> int:
    return run_by_command(
        run, prog="python -m tests.ray_campaign", about=__doc__, all_well="the same rows, nothing lost"
    )


if __name__ == "__main__":
    sys.exit(main())
