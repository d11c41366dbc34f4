"""JPEG files that are real work to decode: crops of two photographs, made once; and a dataset of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

CROP = 400  # pixels a side, in the file
SIDE = 224  # of the sample


def make_files(folder: Path, count: int) -> None:
    """``count`` files; those that are there already stay."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    folder.mkdir(parents=True, exist_ok=True)
    photos = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    rng = np.random.default_rng(0)
    for number in range(count):
        photo = photos[number % 2]
        top, left = rng.integers(photo.shape[0] - CROP), rng.integers(photo.shape[1] - CROP)
        path = folder / f"{number:05d}.jpg"
        if not path.exists():
            data = io.BytesIO()
            Image.fromarray(photo[top : top + CROP, left : left + CROP]).save(data, "JPEG", quality=90)
            path.write_bytes(data.getvalue())


class Photos:
    """Sample: (uint8 array of SIDE x SIDE x 3, which photograph it is from)."""

    def __init__(self, folder: str, count: int) -> None:
        self.paths = [f"{folder}/{number:05d}.jpg" for number in range(count)]
        self.fingerprint = f"photos {count}"

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            pixels = np.asarray(image.convert("RGB"))
        edge = (CROP - SIDE) // 2
        return np.ascontiguousarray(pixels[edge : edge + SIDE, edge : edge + SIDE]), index % 2
