"""An image classifier with all of it: a dataset asset, a shared loader, two processes, the learner, an output model.

Killed at any moment and started again, it ends with the very same weights. It runs alone as well:
``python images.py images && python train.py --images images``. It trains on the GPU that it sees: alone on the
machine's, as a trial on the one that ``resources: {gpus: 1}`` in the experiment file gives it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from images import test_batch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import trials
import trials.data
from trials.learner import Hook, Learner, PublishWeights, Report, ReportFinal, SaveCheckpoint, When

DEFAULTS = {"lr": 0.01, "dropout": 0.1, "images": "images", "warm": ""}
CHANNELS = 8
EPOCHS = int(os.environ.get("EPOCHS", "6"))
BATCH_SIZE = 32  # of each process
EVERY = 4  # iterations between two reports with their checkpoints
OUTPUT = Path("outputs")  # `output` of the experiment file: what later searches may start from
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Evaluate(Hook):
    """The accuracy on the test images, before it is reported; by the first process for all."""

    priority = 10
    when = When(every_steps=EVERY, on_stop=True)
    on_every_rank = False

    def __init__(self, model: nn.Module, images: Tensor, digits: Tensor) -> None:
        self.model, self.images, self.digits = model, images.to(DEVICE), digits.to(DEVICE)

    @torch.no_grad()
    def after_iteration(self, learner: Learner) -> None:
        self.model.eval()
        correct = self.model(self.images).argmax(dim=1) == self.digits
        self.model.train()
        learner.metrics["accuracy"] = float(correct.float().mean())


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is refused as not deterministic
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group("gloo")  # gloo: both processes may have one GPU
    with trials.init(defaults=DEFAULTS) as trial:
        torch.manual_seed(trial.seed)
        model = build_model(trial.parameters["dropout"]).to(DEVICE)
        if trial.parameters["warm"]:
            path = Path(trial.parameters["warm"]) / "model.pt"  # what the best trial of an earlier search left
            model.load_state_dict(torch.load(path, map_location=DEVICE, weights_only=True))
        learner = build_learner(trial, model)
        if learner.run(epochs=EPOCHS) and learner.rank == 0:
            leave(model)
    if distributed.is_initialized():
        distributed.barrier()
        # Torch ends gloo's threads while it holds Python's lock, for which such a thread may be waiting: without
        # destructors nothing hangs. What the trial has reported and saved is on the disk by now.
        sys.stdout.flush()
        os._exit(0)


def build_learner(trial: trials.Trial, model: nn.Module) -> Learner:
    folder = trial.parameters["images"]
    loader = trials.data.shared(
        "images:make_training", BATCH_SIZE, arguments={"folder": str(folder)}, drop_last=True, device=DEVICE
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.parameters["lr"])
    # What is trained: with several processes, a copy in each, whose gradients are averaged.
    trained = DistributedDataParallel(model) if distributed.is_initialized() else model

    def step(batch: Any) -> dict[str, Any]:
        optimizer.zero_grad()
        loss = functional.cross_entropy(trained(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()
        return {"loss": loss.item()}

    return Learner(
        trial,
        step=step,
        batches=loader,
        state={"model": model, "optimizer": optimizer},
        hooks=[
            Evaluate(model, *test_batch(str(folder))),
            Report(every_steps=EVERY),
            ReportFinal("accuracy"),
            PublishWeights("published", when=When(every_steps=EVERY)),  # for whoever follows this trial
            SaveCheckpoint(every_steps=EVERY),
        ],
    )


def build_model(dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(16 * CHANNELS, 10),
    )


def leave(model: nn.Module) -> None:
    """What the trial leaves, on the CPU: the weights, and their digest."""
    weights = {name: value.cpu() for name, value in model.state_dict().items()}
    OUTPUT.mkdir(exist_ok=True)
    torch.save(weights, OUTPUT / "model.pt")
    digest = hashlib.sha256(b"".join(name.encode() + weights[name].numpy().tobytes() for name in sorted(weights)))
    (OUTPUT / "weights.sha256").write_text(digest.hexdigest() + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
