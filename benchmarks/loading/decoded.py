"""What a set that fits decoded in memory allows: decode it once, and let all trials read the same pages."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.loading.sharing_set import SIDE, Photos

BATCH = 32
DECODERS = 2  # processes


def decode_once(photos: Path, count: int, file: Path) -> float:
    """All samples of ``Photos`` into ``file``, an array that NumPy can map; the seconds it took."""
    begun = time.perf_counter()
    np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=(count, SIDE, SIDE, 3)).flush()
    with ProcessPoolExecutor(DECODERS, mp_context=multiprocessing.get_context("fork")) as pool:
        shares = [(str(photos), count, str(file), range(one, count, DECODERS)) for one in range(DECODERS)]
        list(pool.map(_decode, *zip(*shares, strict=True)))
    return time.perf_counter() - begun


def _decode(photos: str, count: int, file: str, indices: range) -> None:
    dataset, images = Photos(photos, count), np.load(file, mmap_mode="r+")
    for index in indices:
        images[index] = dataset[index][0]


def decoded_batches(images: NDArray[np.uint8], rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """An epoch in an order of its own: the batches that torch's collate makes of the samples."""
    import torch

    order = rng.permutation(len(images))
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        yield torch.from_numpy(images[chosen]), torch.from_numpy(chosen % 2)
