"""A training loop in blocks, each with or without a checkpoint; prints what each took. Run by ``__main__``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

import trials

LAYERS = 4
KINDS = ("none", "ours", "torch", "torch_fsync")


def main(rounds: int, steps: int, width: int, batch: int) -> None:
    torch.manual_seed(1)
    layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
    optimizer = torch.optim.Adam(model.parameters())
    samples = torch.randn(batch, width)
    blocks: dict[str, list[float]] = {kind: [] for kind in KINDS}
    stalls: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with trials.init() as trial:
        folder = Path(os.environ["TUNER_ATTEMPT_DIR"])
        step = 0
        for round_ in range(-1, rounds):  # the first one warms up: memory is touched for the first time
            for kind in KINDS[round_ % len(KINDS) :] + KINDS[: round_ % len(KINDS)]:
                begun = time.perf_counter()
                _save(kind, trial, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
                stall = time.perf_counter() - begun
                for _ in range(steps):
                    _train(model, optimizer, samples)
                    trial.report(step=step, loss=0.0)
                    step += 1
                if round_ >= 0:
                    blocks[kind].append(time.perf_counter() - begun)
                    stalls[kind].append(stall)
                trial.wait_for_checkpoint()
                _settle(folder)
    state = [*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())]
    size = sum(tensor.numel() * tensor.element_size() for tensor in state)
    print(json.dumps({"blocks": blocks, "stalls": stalls, "bytes": size}))


def _save(kind: str, trial: trials.Trial, state: dict[str, Any]) -> None:
    path = Path(os.environ["TUNER_ATTEMPT_DIR"]) / "saved.pt"
    if kind == "ours":
        trial.save_checkpoint(state)
    elif kind != "none":
        with path.open("wb") as file:
            torch.save(state, file)
            if kind == "torch_fsync":
                file.flush()
                os.fsync(file.fileno())


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, samples: torch.Tensor) -> None:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(samples), samples).backward()  # type: ignore[no-untyped-call]  # torch's own
    optimizer.step()


def _settle(folder: Path) -> None:
    """Nothing of this block is left for the next one to pay."""
    os.sync()
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    (folder / "saved.pt").unlink(missing_ok=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
