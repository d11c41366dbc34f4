"""The digits of examples/digits, trained by a Learner. Runs alone as well: ``python train.py --lr 0.01 --steps 200``.

Killed at any moment and started again, it ends with the very same weights.
"""

import hashlib
import io
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import trials
from trials.learner import Hook, Learner, LogThroughput, PublishWeights, ReportFinal, SaveCheckpoint, When

DEFAULTS = {"lr": 0.01, "hidden": 64, "dropout": 0.2, "batch_size": 32, "steps": 300, "save_every": 25, "publish": ""}
TEST_IMAGES = 450


class Evaluate(Hook):
    """A hook of one's own: adds the accuracy to the metrics before they are reported."""

    priority = 10
    when = When(every_steps=50, on_stop=True)

    def __init__(self, model: nn.Module, images: Tensor, labels: Tensor) -> None:
        self.model, self.images, self.labels = model, images, labels

    @torch.no_grad()
    def after_iteration(self, learner: Learner) -> None:
        self.model.eval()
        correct = self.model(self.images).argmax(dim=1) == self.labels
        self.model.train()
        learner.metrics["accuracy"] = float(correct.float().mean())


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    with trials.init(defaults=DEFAULTS) as trial:
        torch.manual_seed(trial.seed)
        chosen = trial.parameters
        train, images, labels = load_images()
        model = build_model(chosen)
        optimizer = torch.optim.Adam(model.parameters(), lr=chosen["lr"])
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)

        def step(batch: Any) -> dict[str, Any]:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(batch[0]), batch[1])
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            optimizer.step()
            scheduler.step()
            return {"loss": loss.item()}

        hooks: list[Hook] = [
            Evaluate(model, images, labels),
            ReportFinal("accuracy"),
            SaveCheckpoint(every_steps=chosen["save_every"]),
            LogThroughput(every_s=5),
        ]
        if chosen["publish"]:
            hooks.append(PublishWeights(chosen["publish"], when=When(every_steps=50)))
        learner = Learner(
            trial,
            step=step,
            batches=DataLoader(train, batch_size=chosen["batch_size"], shuffle=True),
            state={"model": model, "optimizer": optimizer, "scheduler": scheduler},
            hooks=hooks,
        )
        if learner.run(steps=chosen["steps"]):
            print(f"weights {digest_of(model)}", flush=True)


def load_images() -> tuple[TensorDataset, Tensor, Tensor]:
    """Training images, and test images with their digits; the same division for every trial."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).flatten(1)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return TensorDataset(images[train], labels[train]), images[test], labels[test]


def build_model(parameters: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, parameters["hidden"]),
        nn.ReLU(),
        nn.Dropout(parameters["dropout"]),
        nn.Linear(parameters["hidden"], 10),
    )


def digest_of(model: nn.Module) -> str:
    buffer = io.BytesIO()
    for name, value in sorted(model.state_dict().items()):
        buffer.write(name.encode() + value.numpy().tobytes())
    return hashlib.sha256(buffer.getvalue()).hexdigest()[:16]


if __name__ == "__main__":
    main()
