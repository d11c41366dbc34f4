"""Train a small network on scikit-learn's 1,797 handwritten digits (8×8 pixels).

Runs alone as well: ``python train.py --lr 0.01 --channels 16``.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import trials
from trials.data import AsyncDataLoader

EPOCHS = 25
TEST_IMAGES = 450
DEFAULTS = {"lr": 0.01, "channels": 16, "dropout": 0.1, "batch_size": 32, "optimizer": "adam", "weight_decay": 1e-5}


def main() -> None:
    torch.set_num_threads(1)  # several trials share the machine; the same sums in the same order every time
    torch.use_deterministic_algorithms(mode=True)
    with trials.init(defaults=DEFAULTS) as trial:
        torch.manual_seed(trial.seed)
        train, test = load_images()
        # The order of an epoch follows from the trial's seed, so a resumed trial sees what it would have seen.
        loader = AsyncDataLoader(TensorDataset(*train), trial.parameters["batch_size"], shuffle=True)
        model = build_model(trial.parameters)
        optimizer = build_optimizer(model, trial.parameters)
        state = trial.restore(default={"epoch": 0, "accuracy": 0.0})
        if "model" in state:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])
            for group in optimizer.param_groups:  # a fork goes on with parameters of its own
                group.update({name: trial.parameters[name] for name in ("lr", "weight_decay")})
            print(f"continuing after epoch {state['epoch']}", flush=True)
        accuracy = state["accuracy"]
        for epoch in range(state["epoch"] + 1, EPOCHS + 1):
            loss = train_epoch(model, optimizer, loader)
            accuracy = accuracy_of(model, test)
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
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
                return  # everything is saved; a trial that only makes room goes on from here
        trial.report_final(accuracy=accuracy)


def load_images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images with their digits; the same division for every trial."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (images[train], labels[train]), (images[test], labels[test])


def build_model(parameters: Any) -> nn.Module:
    channels = parameters["channels"]
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(parameters["dropout"]),
        nn.Linear(2 * channels * 4, 10),
    )


def build_optimizer(model: nn.Module, parameters: Any) -> torch.optim.Optimizer:
    options = {"lr": parameters["lr"], "weight_decay": parameters["weight_decay"]}
    if parameters["optimizer"] == "adam":
        return torch.optim.Adam(model.parameters(), **options)
    return torch.optim.SGD(model.parameters(), **options, momentum=0.9)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: AsyncDataLoader) -> float:
    """One pass over the shuffled training images; the mean loss."""
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()
        total += loss.item() * len(images)
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy_of(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    model.eval()
    images, labels = data
    return float((model(images).argmax(dim=1) == labels).float().mean())


if __name__ == "__main__":
    main()
