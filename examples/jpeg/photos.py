"""A few thousand JPEG files, cut at random out of scikit-learn's two sample photographs, so that decoding is real."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

FILES = 2000
TEST_FILES = 200
SIDE = 160  # pixels of a file
QUALITY = 90
SEED = 0


def make_photos(folder: Path, *, files: int = FILES, side: int = SIDE) -> Path:
    """``folder`` with its files; nothing is done where they are complete already."""
    done = folder / "complete"
    if done.exists() and done.read_text(encoding="ascii") == f"{files} {side}":
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    photographs = [np.asarray(image) for image in load_sample_images().images]
    rng = np.random.default_rng(SEED)
    for number in range(files):
        label = number % len(photographs)
        photograph = photographs[label]
        top, left = (int(rng.integers(0, size - side)) for size in photograph.shape[:2])
        image = Image.fromarray(photograph[top : top + side, left : left + side])
        image.save(folder / f"{number:05d}-{label}.jpg", quality=QUALITY)
    done.write_text(f"{files} {side}", encoding="ascii")  # last: a folder that was interrupted is made again
    return folder


class Photos:
    """(image of 3 × ``size`` × ``size`` in 0 to 1, which photograph it was cut from)."""

    def __init__(self, folder: Path, *, size: int = 64) -> None:
        self.files = sorted(folder.glob("*.jpg"))
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((self.size, self.size)))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255), int(path.stem[-1])


if __name__ == "__main__":
    print(make_photos(Path(sys.argv[1])))
