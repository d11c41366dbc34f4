"""The learner killed with SIGKILL, and readers of weights whose publisher is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.learner import Learner, WeightsReader

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "learner" / "train.py"
STEPS = 120


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_") and k != "RANK"}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


# Each life is a fork of one process that has imported torch and scikit-learn, which takes longer than the training.
LIVES = """
import os, runpy, signal, sys
import sklearn.datasets, torch

torch.set_num_threads(1)
script, *arguments = sys.argv[1:]

def live(folder, output, kill_at):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(reading)
        os.close(writing)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with open(reading) as lines, open(output, "w") as kept:
        for line in lines:
            kept.write(line)
            if line.startswith(f"step {kill_at}:"):
                os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

for folder in ("whole", "killed"):
    os.mkdir(folder)
live("whole", "whole.txt", None)
for number, kill_at in enumerate((53, 97, None)):
    live("killed", f"killed-{number}.txt", kill_at)
"""


@pytest.mark.slow
def test_the_digits_end_with_the_same_weights_after_two_kills(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "-c", LIVES, str(EXAMPLE)]
    command += ["--steps", str(STEPS), "--save-every", "20", "--publish", "policy"]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment() | one_thread, check=True, timeout=180)
    whole, _, again, last = ((tmp_path / f"{n}.txt").read_text() for n in ("whole", "killed-0", "killed-1", "killed-2"))

    assert re.search(r"continuing after step (20|40)\b", again), again
    assert re.search(r"continuing after step (60|80)\b", last), last
    (expected,) = re.findall(r"^weights \w+$", whole, re.MULTILINE)
    assert expected in last
    assert re.findall(r"^step 1\d\d: loss=.*$", whole, re.MULTILINE) == re.findall(
        r"^step 1\d\d: loss=.*$", last, re.MULTILINE
    )
    policies = [WeightsReader(tmp_path / name / "policy") for name in ("whole", "killed")]
    first, second = (reader.poll() for reader in policies)
    assert {name: value.tolist() for name, value in first.items()} == {n: v.tolist() for n, v in second.items()}


class Kept:
    """A trial that keeps its newest checkpoint as text, and is asked to stop at some step."""

    def __init__(self) -> None:
        self.saved = ""
        self.left = 1_000

    def restore(self) -> Any:
        return json.loads(self.saved) if self.saved else None

    def report(self, values: Any, *, step: int) -> None: ...

    def save_checkpoint(self, state: Any, *, step: int) -> None:
        self.saved = json.dumps(state)

    def should_stop(self) -> bool:
        self.left -= 1
        return self.left == 0


class Seen:
    """Its weights are the batches it has seen."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []

    def step(self, batch: Any) -> None:
        self.batches.append(batch.tolist())

    def state_dict(self) -> list[list[float]]:
        return self.batches

    def load_state_dict(self, state: list[list[float]]) -> None:
        self.batches = state


@pytest.mark.parametrize("workers", [0, 2])
def test_the_position_of_our_own_loader_is_part_of_the_checkpoint(workers: int) -> None:
    torch = pytest.importorskip("torch")
    from trials.data import AsyncDataLoader

    def learn(trial: Kept) -> list[list[float]]:
        model = Seen()
        with AsyncDataLoader(torch.arange(25.0), batch_size=4, shuffle=True, num_workers=workers, seed=3) as loader:
            Learner(trial, step=model.step, batches=loader, state={"model": model}).run(steps=16)
        return model.batches

    whole = learn(Kept())
    for step in (1, 7, 9):
        trial = Kept()
        trial.left = step
        assert len(learn(trial)) == step
        assert learn(trial) == whole


PUBLISHER = """
import sys
from trials.learner import publish_weights
version = int(sys.argv[1])
while True:
    version += 1
    publish_weights({"version": version, "weights": [version] * 20_000}, version=version, to=[sys.argv[2]], keep=2)
    print(version, flush=True)
"""


def test_readers_never_see_torn_weights_while_their_publisher_is_killed_again_and_again(tmp_path: Path) -> None:
    reader, late = WeightsReader(tmp_path / "place"), WeightsReader(tmp_path / "place")
    seen: list[int] = []

    def look() -> int:
        found = reader.poll()
        if found is not None:
            assert found["weights"] == [found["version"]] * 20_000
            seen.append(found["version"])
        return len(seen)

    for life in range(4):
        before = len(seen)
        command = [sys.executable, "-c", PUBLISHER, str(1_000 * life), str(tmp_path / "place")]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) as publisher:
            try:
                wait_until(lambda before=before: look() >= before + 15)
            finally:
                publisher.kill()
        assert late.poll() is not None
    assert seen == sorted(seen)
