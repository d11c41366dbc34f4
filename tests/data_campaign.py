"""Kill workers, fork servers and trials at random points while data is loaded: ``python -m tests.data_campaign``.

Every round is a trial that loads two epochs. Afterwards every sample was there exactly once in each epoch, with the
bytes it has alone, and nothing is left: no process, no descriptor, no shared memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.data_samples import SlowlyAugmented, jittered
from tests.forked import Child
from tests.processes_left import descendants
from trials.data import AsyncDataLoader

LENGTH, BATCH, EPOCHS = 120, 7, 2
ROUND_TIMEOUT_S = 300.0
STRIKE_WITHIN_S = 0.15  # of the first worker's start, or of the last kill
OF_TRIALS = ("psm_", "sem.", "torch_", "trials", "tuner")  # of multiprocessing, torch, and our own

SCRIPTS = 0.1  # of the trials are programs of their own; the others are forked, where torch is there already
SCRIPT = """
import sys
from tests.data_campaign import load

if __name__ == "__main__":
    load(sys.argv[1], int(sys.argv[2]))
"""


def load(folder: str, workers: int) -> None:
    """The trial: goes on where the state in ``folder`` says, and writes a line for each batch."""
    log, saved = Path(folder) / "log", Path(folder) / "state.json"
    with AsyncDataLoader(
        SlowlyAugmented(LENGTH), BATCH, shuffle=True, seed=5, transform=jittered, num_workers=workers
    ) as loader:
        if saved.exists():
            loader.load_state_dict(json.loads(saved.read_text()))
        with log.open("a") as file:
            while loader.epoch < EPOCHS:
                for sample, drawn, _ in loader:
                    epoch = loader.epoch
                    made = sample["row"].numpy().tobytes() + drawn.numpy().tobytes()
                    line = [epoch, sample["index"].tolist(), hashlib.sha256(made).hexdigest()[:16]]
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    saved.with_suffix(".new").write_text(json.dumps(loader.state_dict()))
                    saved.with_suffix(".new").replace(saved)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.data_campaign", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    struck: Counter[str] = Counter()
    expected = run_round(0, kills=0)
    for number in range(options.rounds):
        found = run_round(options.seed + number, kills=2, struck=struck)
        if found != expected:
            print(f"seed {options.seed + number}: the batches are not those of an unkilled trial")
            return 1
        print(f"round {number + 1} of {options.rounds}", end="\r", flush=True)
    kills = ", ".join(f"{count} of {what}" for what, count in struck.most_common())
    print(f"{options.rounds} rounds, killed {kills}: every sample once in each epoch, nothing left")
    return 0


def run_round(
    seed: int, *, kills: int, struck: Counter[str] | None = None, scripts: float = SCRIPTS
) -> list[tuple[int, list[int], str]]:
    """The batches of a trial of which something was killed ``kills`` times; it is started again when it was the trial.

    AssertionError for a sample lost or doubled, a hang, or anything left. What was killed is counted in ``struck``;
    ``scripts``: the portion of the trials that are programs of their own.
    """
    struck = Counter() if struck is None else struck
    rng = random.Random(seed)
    shared = _shared_memory()
    with tempfile.TemporaryDirectory(prefix="data-campaign-") as name:
        folder = Path(name)
        deadline = time.monotonic() + ROUND_TIMEOUT_S
        left = kills
        while True:
            trial = _start(folder, workers=rng.choice([1, 2, 3]), script=rng.random() < scripts)
            below: set[int] = set()
            while left and not trial.wait(0):
                below |= _strike(rng, trial, struck)
                left -= 1
            try:
                assert trial.wait(max(0.1, deadline - time.monotonic())), f"seed {seed}: the trial hangs"
            finally:
                below |= descendants(trial.pid)
                trial.end()
            _wait_gone(below, deadline)
            if trial.code == 0:
                break
            said = (folder / "output").read_text()
            assert trial.code == -signal.SIGKILL, f"seed {seed}: the trial ended with {trial.code}: {said}"
        batches = _read(folder / "log")
    _wait_unshared(_shared_memory() - shared, deadline)
    for epoch in range(EPOCHS):
        indices = sorted(index for e, chosen, _ in batches if e == epoch for index in chosen)
        assert indices == list(range(LENGTH)), f"seed {seed}: epoch {epoch} has other samples"
    return batches


def _start(folder: Path, *, workers: int, script: bool) -> Child:
    if not script:
        return Child(partial(load, str(folder), workers), folder / "output")
    path = folder / "trial.py"
    path.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, str(path), str(folder), str(workers)]
    return Child(partial(os.execve, sys.executable, command, environment), folder / "output")


def _strike(rng: random.Random, trial: Child, struck: Counter[str]) -> set[int]:
    """Kill the trial, or something below it, at a point that the clock chooses. What was below it before."""
    limit = time.monotonic() + 10
    while not descendants(trial.pid) and not trial.wait(0.002) and time.monotonic() < limit:
        pass
    trial.wait(rng.uniform(0.0, STRIKE_WITHIN_S))
    below = descendants(trial.pid)
    chosen = rng.choice([trial.pid, *sorted(below)])
    try:
        os.kill(chosen, signal.SIGKILL)
    except ProcessLookupError:
        struck["nothing: it had ended"] += 1
        return below
    struck["the trial" if chosen == trial.pid else "the first below it" if chosen == min(below) else "workers"] += 1
    return below


def _wait_gone(pids: set[int], deadline: float) -> None:
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"processes {sorted(pid for pid in pids if _alive(pid))} are left"
        time.sleep(0.01)


def _shared_memory() -> set[str]:
    """What a trial may leave; a server of PostgreSQL or a Ray cluster, of tests beside this one, keeps theirs."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(OF_TRIALS)}  # noqa: PTH208  # names are enough


def _wait_unshared(names: set[str], deadline: float) -> None:
    """What another program of this machine has there goes; what a trial left stays."""
    while left := names & _shared_memory():
        assert time.monotonic() < deadline, f"shared memory {sorted(left)} is left"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _read(log: Path) -> list[tuple[int, list[int], str]]:
    """One line a batch; one that was delivered a second time, since the trial died before it saved its position, must
    be the same, and counts once."""
    found: dict[tuple[int, int], tuple[int, list[int], str]] = {}
    for line in log.read_text().splitlines():
        try:
            epoch, indices, digest = json.loads(line)
        except ValueError:
            continue  # the trial was killed while it wrote the line
        key = (epoch, indices[0])
        assert found.setdefault(key, (epoch, indices, digest)) == (epoch, indices, digest)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
