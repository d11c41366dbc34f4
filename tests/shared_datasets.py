"""Datasets that a shared data server and its trials both make; torch is imported only where it is drawn from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


class Numbers:
    """Each sample is its index."""

    def __init__(self, length: int = 100) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return index


class Drawn(Numbers):
    """Every sample is drawn from the global generators: equal bytes mean that they were keyed."""

    def __getitem__(self, index: int) -> Any:
        noise = np.random.random(16) + random.random()
        return noise + index, index, np.float32(index / 2)


class Augmented(Drawn):
    def __init__(self, length: int = 100) -> None:
        super().__init__(length)
        import torch

        self._draw = torch.rand

    def __getitem__(self, index: int) -> Any:
        noise, _, half = super().__getitem__(index)
        return self._draw(16) + float(noise[0]), index, half


class Decoded(Numbers):
    """``decode`` is shared, ``transform`` is each trial's own."""

    def decode(self, index: int) -> dict[str, Any]:
        return {"pixels": np.full((4, 5), index % 251, dtype=np.uint8), "label": index}

    def transform(self, sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        import torch

        return {**sample, "noise": rng.random(3) + random.random() + float(torch.rand(()))}

    def __getitem__(self, index: int) -> Any:
        return self.decode(index)


class Broken(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 17:
            raise ValueError("the file is torn")
        return index


class Odd(Numbers):
    def __getitem__(self, index: int) -> Any:
        return np.full(5 if index == 33 else 4, index)
