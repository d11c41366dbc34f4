"""Takeovers one after the other: the active writer is killed, or stopped and continued later, while standbys wait.

Each writer commits step after step and says which were acknowledged. At the end every acknowledged step is there once,
no step is missing and none was written by a writer that had been followed.

    python -m tests.takeover_campaign --rounds 100 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import EXPERIMENT_ID, StillClock, a_line, a_metric, a_trial, an_experiment
from tests.postgresql import Server, a_server
from tests.waiting import wait_until
from tuner_service.dispatcher.changes import Changes
from tuner_service.storage.engine import open_store
from tuner_service.storage.postgresql.lease import LeaseLostError

REPOSITORY = Path(__file__).resolve().parents[1]
STANDBYS = 2
STEPS_BETWEEN = 5  # acknowledged before the next one is killed
METRICS = 5  # of a step
FOLLOWED = 3  # exit code of a writer that found itself followed
PATIENCE_S = 30.0


def step(number: int) -> Changes:
    return Changes(
        experiments={EXPERIMENT_ID: an_experiment(next_line=number + 1)},
        trials={(EXPERIMENT_ID, number): a_trial(number=number)},
        journal=[a_line(line=number, payload={"number": number})],
        metrics=[a_metric(number=number, sequence=sequence, line=number) for sequence in range(1, METRICS + 1)],
    )


def write(url: str) -> int:
    """A writer's whole life."""
    store = open_store(url, StillClock(), waits=lambda: print("waits", flush=True))
    number = store.queries.sequence()
    try:
        while True:
            number += 1
            assert store.commit(step(number)) == number
            print(number, flush=True)
    except LeaseLostError:
        return FOLLOWED


@dataclass
class Writer:
    process: subprocess.Popen[str]
    waits: bool = False
    acknowledged: list[int] = field(default_factory=list)
    _listener: threading.Thread | None = None

    def begin(self) -> None:
        self._listener = threading.Thread(target=self.listen, daemon=True)
        self._listener.start()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self._listener is not None
        assert self.process.stdout is not None
        self._listener.join()
        self.process.stdout.close()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == "waits":
                self.waits = True
            else:
                self.acknowledged.append(int(line))

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count, timeout_s=PATIENCE_S)

    def wait_until_it_waits(self) -> None:
        wait_until(lambda: self.waits, timeout_s=PATIENCE_S)


def a_writer(url: str) -> Writer:
    command = [sys.executable, "-m", "tests.takeover_campaign", "--write", url]
    writer = Writer(subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True))
    writer.begin()
    return writer


def run(server: Server, *, rounds: int, seed: int) -> dict[str, list[float]]:
    """The seconds that each takeover took, by how it came about. AssertionError where a promise was broken."""
    rng, url = random.Random(seed), server.filled_database()
    took: dict[str, list[float]] = {"killed": [], "stopped": []}
    told: set[int] = set()
    active, standbys = a_writer(url), list[Writer]()
    try:
        for _ in range(rounds):
            active.wait_for(STEPS_BETWEEN)
            while len(standbys) < STANDBYS:
                standbys.append(a_writer(url))
            for standby in standbys:
                standby.wait_until_it_waits()
            how = rng.choice(sorted(took))
            time.sleep(rng.uniform(0, 0.05))
            os.kill(active.process.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            begun = time.monotonic()
            wait_until(lambda: any(standby.acknowledged for standby in standbys), timeout_s=PATIENCE_S)
            took[how].append(time.monotonic() - begun)
            (following,) = [standby for standby in standbys if standby.acknowledged]
            if how == "stopped":
                os.kill(active.process.pid, signal.SIGCONT)
                assert active.process.wait(PATIENCE_S) == FOLLOWED
            active.end()
            told |= set(active.acknowledged)
            standbys.remove(following)
            active = following
        told |= set(active.acknowledged)
    finally:
        for writer in (active, *standbys):
            writer.end()
    check(url, told)
    return took


def check(url: str, told: set[int]) -> None:
    with closing(open_store(url, StillClock())) as store:
        count = store.queries.sequence()
        lines: list[int] = []
        while found := store.queries.journal(EXPERIMENT_ID, after=len(lines)):
            lines += [line.line for line in found]
        assert lines == list(range(1, count + 1)), "a step is missing, or there twice"
        assert told <= set(lines), f"acknowledged and gone: {sorted(told - set(lines))[:5]}"
        metrics = store.queries.all_metrics(EXPERIMENT_ID, limit=METRICS * count + 1)
        assert len(metrics) == METRICS * count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", metavar="URL", help="be a writer")
    arguments = parser.parse_args()
    if arguments.write:
        return write(arguments.write)
    server = a_server()
    try:
        took = run(server, rounds=arguments.rounds, seed=arguments.seed)
    finally:
        server.end()
    for how, seconds in took.items():
        if seconds:
            middle, longest = statistics.median(seconds), max(seconds)
            print(f"{how} {len(seconds)} times: followed after {middle:.2f} s, at most {longest:.2f} s")
    print("nothing lost, nothing twice, and who had been followed wrote nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
