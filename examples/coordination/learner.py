"""A learner that coordinate.py drives: it is given its task and its data, and tells what was hard to learn."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trials
from trials.data import AsyncDataLoader, references
from trials.learner import Learner, LearnerPort, ReportFinal, SaveCheckpoint

DEFAULTS = {"place": os.environ.get("PLACE", "place"), "name": "left", "workers": 1}


def main() -> None:
    torch.set_num_threads(1)
    with (
        trials.init(defaults=DEFAULTS) as trial,
        LearnerPort(trial, trial.parameters["place"], name=trial.parameters["name"]) as port,
    ):
        task = port.wait_for_task()
        if task is not None:  # else the trial was asked to stop meanwhile
            learn(trial, port, task)


def learn(trial: trials.Trial, port: LearnerPort, task: Any) -> None:
    torch.manual_seed(task["seed"])
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=task["lr"])
    folder = Path(task["samples"])
    source = port.data_source(lambda data: references(data, folder=folder))
    loader = AsyncDataLoader(source, task["batch_size"], num_workers=trial.parameters["workers"])

    def step(batch: Any) -> dict[str, float]:
        errors = (model(batch["x"]) - batch["y"]).square().squeeze(1)
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        learner.report_priorities(batch["data_id"], errors.detach())
        return {"loss": errors.mean().item()}

    learner = Learner(
        trial,
        step=step,
        batches=loader,
        state={"model": model, "optimizer": optimizer},
        hooks=[port.hook(), ReportFinal("loss"), SaveCheckpoint(every_steps=1)],
    )
    with loader:
        if learner.run(steps=task["iterations"]):
            print(f"weights {digest_of(model)}", flush=True)


def digest_of(model: nn.Module) -> str:
    weights = model.state_dict()
    return hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()[:16]


if __name__ == "__main__":
    main()
