"""Tell two photographs apart by small pieces of them: JPEG files, decoded and augmented by worker processes.

Runs alone as well: ``WORKERS=2 python train.py``. Killed in the middle of an epoch and started again, with any number
of workers, it goes on at the sample where its last checkpoint was, and ends with the same loss curve bit for bit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from photos import Photos, make_photos
from torch import Tensor, nn
from torch.nn import functional

import trials
from trials.data import AsyncDataLoader

DEFAULTS = {"lr": 0.01, "channels": 8, "batch_size": 32, "epochs": 3, "files": 2000, "every": 10}
FOLDER = Path(os.environ.get("PHOTOS", "photos"))
WORKERS = int(os.environ.get("WORKERS", "2"))  # no parameter: it changes nothing but the speed


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    with trials.init(defaults=DEFAULTS) as trial:
        parameters = trial.parameters
        torch.manual_seed(trial.seed)
        model = build_model(parameters["channels"])
        optimizer = torch.optim.SGD(model.parameters(), lr=parameters["lr"], momentum=0.9)
        photos = Photos(make_photos(FOLDER, files=parameters["files"]))
        with AsyncDataLoader(
            photos,
            parameters["batch_size"],
            shuffle=True,
            num_workers=WORKERS,
            transform=flipped_and_noisy,
        ) as loader:
            state = trial.restore(default={"step": 0})
            if "model" in state:
                model.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
                loader.load_state_dict(state["loader"])
                print(f"continuing after step {state['step']}", flush=True)
            train(trial, model, optimizer, loader, step=state["step"])


def train(
    trial: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loader: AsyncDataLoader, *, step: int
) -> None:
    while loader.epoch < trial.parameters["epochs"]:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            optimizer.step()
            step += 1
            print(f"step {step}: loss {float(loss.item()).hex()}", flush=True)
            trial.report(step=step, loss=loss.item())
            if step % trial.parameters["every"] == 0:
                trial.save_checkpoint(
                    {
                        "step": step,
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),
                    },
                    step=step,
                )
            if trial.should_stop():
                return
    waited = loader.stats()["wait_s"]
    trial.report_final(loss=loss_of(model, loader.dataset), waited_for_data=waited)


def flipped_and_noisy(sample: tuple[Tensor, int], rng: np.random.Generator) -> tuple[Tensor, int]:
    """Half of the images mirrored, all of them a little noisy; the generator is the sample's own."""
    image, label = sample
    if rng.random() < 0.5:
        image = image.flip(2)
    noise = torch.from_numpy(rng.normal(scale=0.05, size=tuple(image.shape)).astype(np.float32))
    return image + noise, label


def build_model(channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, kernel_size=5, stride=2),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, 2),
    )


@torch.no_grad()
def loss_of(model: nn.Module, photos: Photos) -> float:
    """Over every tenth file, without augmentation."""
    chosen = [photos[index] for index in range(0, len(photos), 10)]
    images, labels = torch.stack([image for image, _ in chosen]), torch.tensor([label for _, label in chosen])
    return float(functional.cross_entropy(model(images), labels))


if __name__ == "__main__":
    main()
