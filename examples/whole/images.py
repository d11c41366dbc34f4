"""Handwritten digits as JPEG files, and the dataset that reads them. ``python images.py FOLDER`` writes the files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

SIDE = 16  # pixels of a file; scikit-learn's digits have 8
TRAINING, TESTING = 384, 128
SEED = 0
Sample = tuple[Tensor, int]


def write_images(folder: Path) -> Path:
    """``folder/train`` and ``folder/test``, one file an image, its digit at the end of its name."""
    from sklearn.datasets import load_digits  # takes a second, which the trials need not spend

    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.images))[: TRAINING + TESTING]
    for place, number in enumerate(order.tolist()):
        part = folder / ("train" if place < TRAINING else "test")
        part.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[number] * (255 / 16)).astype(np.uint8)
        image = Image.fromarray(pixels).resize((SIDE, SIDE))
        image.save(part / f"{number:04d}-{digits.target[number]}.jpg", quality=95)
    return folder


class Digits:
    """(image of 1 × 16 × 16 in 0 to 1, its digit). ``decode`` is what the trials of a node share."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(Path(folder).glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def decode(self, index: int) -> Sample:
        path = self.files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image, dtype=np.float32) / 255
        return torch.from_numpy(pixels).unsqueeze(0), int(path.stem[-1])

    def transform(self, sample: Sample, rng: np.random.Generator) -> Sample:
        """Moved by a pixel at random: each trial's own."""
        image, digit = sample
        down, right = rng.integers(-1, 2, size=2).tolist()
        return torch.roll(image, (down, right), dims=(1, 2)), digit

    def __getitem__(self, index: int) -> Sample:
        return self.decode(index)


def make_training(folder: str) -> Digits:
    return Digits(f"{folder}/train")


def test_batch(folder: str) -> tuple[Tensor, Tensor]:
    tested = Digits(f"{folder}/test")
    images, digits = zip(*(tested.decode(index) for index in range(len(tested))), strict=True)
    return torch.stack(images), torch.tensor(digits)


if __name__ == "__main__":
    print(write_images(Path(sys.argv[1])))
