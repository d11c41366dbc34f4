"""A small network that tells two moons apart. Runs alone as well: ``python train.py --lr 0.1 --hidden 16``."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import trials
from trials.data import AsyncDataLoader

DEFAULTS = {"lr": 0.03, "hidden": 16, "dropout": 0.0, "epochs": 20}


def main() -> None:
    torch.set_num_threads(1)  # several trials share the machine
    with trials.init(defaults=DEFAULTS) as trial:
        torch.manual_seed(trial.seed)
        # In place of your own data.
        train, validation = TensorDataset(*moons(400, seed=0)), moons(200, seed=1)
        loader = AsyncDataLoader(train, 32, shuffle=True)
        model = build_model(trial.parameters)
        optimizer = torch.optim.Adam(model.parameters(), lr=trial.parameters["lr"])
        state = trial.restore(default={"epoch": 0, "accuracy": 0.0})  # where it was, after a crash
        if "model" in state:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])
        accuracy = state["accuracy"]
        for epoch in range(state["epoch"] + 1, trial.parameters["epochs"] + 1):
            loss = train_epoch(model, optimizer, loader)
            accuracy = accuracy_of(model, *validation)
            trial.report(step=epoch, accuracy=accuracy, loss=loss)
            trial.save_checkpoint(
                {
                    "epoch": epoch,
                    "accuracy": accuracy,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                },
                step=epoch,
            )
            if trial.should_stop():
                return  # everything is saved
        trial.report_final(accuracy=accuracy)


def moons(count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Points of two half circles that reach into each other, and of which each is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    angles = torch.rand(count, generator=generator) * math.pi
    above = torch.stack([angles.cos(), angles.sin()], dim=1)
    below = torch.stack([1 - angles.cos(), 0.5 - angles.sin()], dim=1)
    points = torch.where(labels.unsqueeze(1) == 0, above, below)
    return points + 0.15 * torch.randn(count, 2, generator=generator), labels


def build_model(parameters: Any) -> nn.Module:
    hidden = parameters["hidden"]
    return nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Dropout(parameters["dropout"]), nn.Linear(hidden, 2))


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any) -> float:
    model.train()
    losses = []
    for points, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(points), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy_of(model: nn.Module, points: Tensor, labels: Tensor) -> float:
    model.eval()
    return float((model(points).argmax(dim=1) == labels).float().mean())


if __name__ == "__main__":
    main()
