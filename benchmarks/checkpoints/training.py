"""A training loop in blocks, each with or without a checkpoint; prints what each took. Run by ``__main__``.

With the name of a kind as a further argument, a process of its own for that kind: its first save, the median of those
after it, and the most memory that the process and all below it had.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import async_save

import trials
from benchmarks.loading.costs import PeakMemory

LAYERS = 4
KINDS = ("none", "ours", "torch", "torch_fsync", "async_save")
SAVES_ALONE, STEPS_ALONE = 5, 4  # after the first one; between two
LOOK_S = 0.02


class Training:
    """The model, its optimizer, and one step of both."""

    def __init__(self, width: int, batch: int) -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
        self.model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.samples = torch.randn(batch, width)
        self.step = 0

    def train(self, trial: trials.Trial, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(self.samples), self.samples)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            self.optimizer.step()
            trial.report(step=self.step, loss=0.0)
            self.step += 1

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def size(self) -> int:
        state = [*self.model.parameters(), *(v for s in self.optimizer.state.values() for v in s.values())]
        return sum(tensor.numel() * tensor.element_size() for tensor in state)


class Saver:
    """Saves in the ways of KINDS. ``wait`` until nothing is left to be written."""

    def __init__(self, trial: trials.Trial) -> None:
        self._trial, self._folder = trial, Path(os.environ["TUNER_ATTEMPT_DIR"])
        self._pending: Any = None
        self._saved = 0

    def save(self, kind: str, state: dict[str, Any]) -> float:
        """Seconds that the training loop waited for it."""
        begun = time.perf_counter()
        if kind == "ours":
            self._trial.save_checkpoint(state)
        elif kind == "async_save":
            self._save_async(state)
        elif kind != "none":
            with (self._folder / "saved.pt").open("wb") as file:
                torch.save(state, file)
                if kind == "torch_fsync":
                    file.flush()
                    os.fsync(file.fileno())
        return time.perf_counter() - begun

    def _save_async(self, state: dict[str, Any]) -> None:
        """As its page shows it: a folder for each step, the state copied before it returns, the rest in a thread."""
        self._saved += 1
        target = self._folder / "distributed" / str(self._saved)
        self._pending = async_save(state, checkpoint_id=target, no_dist=True)

    def wait(self) -> None:
        self._trial.wait_for_checkpoint()
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def settle(self) -> None:
        """Nothing of this block is left for the next one to pay."""
        self.wait()
        os.sync()
        for name in ("checkpoints", "distributed"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        (self._folder / "saved.pt").unlink(missing_ok=True)


def main(rounds: int, steps: int, width: int, batch: int) -> None:
    training = Training(width, batch)
    blocks: dict[str, list[float]] = {kind: [] for kind in KINDS}
    stalls: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with trials.init() as trial:
        saver = Saver(trial)
        for round_ in range(-1, rounds):  # the first one warms up: memory is touched for the first time
            for kind in KINDS[round_ % len(KINDS) :] + KINDS[: round_ % len(KINDS)]:
                begun = time.perf_counter()
                stall = saver.save(kind, training.state())
                training.train(trial, steps)
                if round_ >= 0:
                    blocks[kind].append(time.perf_counter() - begun)
                    stalls[kind].append(stall)
                saver.settle()
    print(json.dumps({"blocks": blocks, "stalls": stalls, "bytes": training.size()}))


def alone(width: int, batch: int, kind: str) -> None:
    training = Training(width, batch)
    with trials.init() as trial:
        saver = Saver(trial)
        training.train(trial, 2)  # the optimizer has its moments, and every library its memory
        memory = PeakMemory(every_s=LOOK_S)
        stalls = []
        for _ in range(1 + SAVES_ALONE):
            stalls.append(saver.save(kind, training.state()))
            training.train(trial, STEPS_ALONE)
            saver.wait()
        peak = memory.stop()
    print(json.dumps({"first_s": stalls[0], "next_s": median(stalls[1:]), "peak_mib": peak / 2**20}))


if __name__ == "__main__":
    rounds_, steps_, width_, batch_ = (int(argument) for argument in sys.argv[1:5])
    if len(sys.argv) > 5:
        alone(width_, batch_, sys.argv[5])
    else:
        main(rounds_, steps_, width_, batch_)
