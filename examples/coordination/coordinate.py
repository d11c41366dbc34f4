"""Drives two learners: writes samples, hands out references to those that are hard to learn, hears what was learnt.

In three terminals: ``python coordinate.py``, and in folders of their own ``python ../learner.py --place ../place
--name left`` and ``--name right``. Kill any of them at any moment and start it again: the weights come out the same.
"""

from __future__ import annotations

import argparse
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trials.learner import Coordinator, Demand, LearnInfo

SAMPLES = 64
AHEAD = 4  # batches that a learner's loader may ask for before it has trained on those it has


class HardSamples:
    """Samples are drawn the more often the worse a learner was at them; each learner by its own."""

    def __init__(self) -> None:
        self.weights: dict[str, Any] = {}
        self.learnt_lately: dict[str, list[LearnInfo]] = {}
        self.losses: dict[str, float] = {}

    def sample(self, learner: str, demand: Demand) -> list[dict[str, str]]:
        # Only what it has learnt for certain by now counts, so that the choice does not depend on how fast it is.
        late = self.learnt_lately.setdefault(learner, [])
        while late and late[0].number <= demand.cur_learner_iter - AHEAD:
            info = late.pop(0)
            self.weights_of(learner)[[int(name) for name in info.samples]] = info.priorities
        weights = self.weights_of(learner) + 0.01
        rng = np.random.default_rng((zlib.crc32(learner.encode()), demand.cur_learner_iter))
        chosen = rng.choice(SAMPLES, size=demand.batch_size, replace=False, p=weights / weights.sum())
        return [{"data_id": str(number), "compressor": "zlib"} for number in chosen]

    def learnt(self, learner: str, info: LearnInfo) -> None:
        self.learnt_lately.setdefault(learner, []).append(info)
        self.losses[learner] = info.metrics["loss"]
        print(f"{learner}: iteration {info.number}, loss {self.losses[learner]:.4f}", flush=True)

    def weights_of(self, learner: str) -> Any:
        return self.weights.setdefault(learner, np.ones(SAMPLES))


def write_samples(folder: Path) -> None:
    """What actors would write: files that references name."""
    folder.mkdir(exist_ok=True)
    for number, x in enumerate(torch.linspace(-1, 1, SAMPLES)):
        path = folder / str(number)
        if not path.exists():
            torch.save({"x": x.view(1), "y": torch.sin(3 * x).view(1)}, path.with_suffix(".new"))
            packed = path.with_suffix(".zlib")
            packed.write_bytes(zlib.compress(path.with_suffix(".new").read_bytes()))
            packed.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Drives two learners.")
    parser.add_argument("--place", type=Path, default=Path("place"), help="the folder where learners are found")
    parser.add_argument("--iterations", type=int, default=30)
    options = parser.parse_args()
    options.place.mkdir(exist_ok=True)
    samples = options.place.absolute() / "samples"
    write_samples(samples)
    common = {"samples": str(samples), "iterations": options.iterations, "batch_size": 8, "seed": 7}
    tasks: dict[str, dict[str, Any]] = {"left": {**common, "lr": 0.1}, "right": {**common, "lr": 0.02}}
    chooser = HardSamples()
    with Coordinator(options.place, chooser=chooser, journal=options.place / "journal") as coordinator:
        ended = coordinator.run(tasks)
    for name, end in ended.items():
        how = "finished" if end.finished else "was closed"
        print(f"{name} {how} after {end.step} iterations, loss {chooser.losses[name]:.4f}")


if __name__ == "__main__":
    main()
