"""What is loaded: each a dataset, a batch size, and how many batches a round takes."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.loading.sharing_set import Photos, make_files

PHOTOS = Path(tempfile.gettempdir()) / "tuner-benchmark-photos"
PHOTO_FILES = 1000
# The sets are longer than what any loader takes in a round: the end of an epoch would be in the figures of some of them
# only. Their samples repeat.
PHOTOS_LENGTH, TINY_LENGTH, LARGE_LENGTH, ROWS_LENGTH = 20_000, 2_000_000, 32_000, 2_000_000
ROWS_FILE = Path(tempfile.gettempdir()) / "tuner-benchmark-rows.npy"
ROWS, ROW_SHAPE = 20_000, (32, 32, 3)


@dataclass(frozen=True, kw_only=True)
class Workload:
    name: str
    make: Callable[[], Any]
    batch_size: int
    batches: int  # of a round at least, after those of its start
    collate: Callable[[list[Any]], Any] | None = None


class Tiny:
    """In memory, 64 bytes a sample: nothing but overhead."""

    def __init__(self) -> None:
        self.rows = torch.zeros(64_000, 16)

    def __len__(self) -> int:
        return TINY_LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.rows[index % 64_000], index


class Large:
    """8 MiB a sample, made once: nothing but moving bytes; 64 MiB a batch."""

    def __init__(self) -> None:
        self.rows = [torch.full((8 << 18,), float(row)) for row in range(4)]

    def __len__(self) -> int:
        return LARGE_LENGTH

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index % len(self.rows)]


class PhotoTensors(Photos):
    """Whole files, as torchvision's ToTensor makes them: float32, 3 x CROP x CROP."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with Image.open(self.paths[index]) as image:
            pixels = torch.from_numpy(np.array(image.convert("RGB")))
        return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div_(255), index % 2


class Rows:
    """Small pictures in a file that is mapped, many of which one call reads (``__getitems__``)."""

    def __init__(self) -> None:
        self.rows = np.load(ROWS_FILE, mmap_mode="r").view(np.ndarray)

    def __len__(self) -> int:
        return ROWS_LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.rows[index % ROWS].copy()), index

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int]]:
        rows = torch.from_numpy(self.rows[np.asarray(indices) % ROWS])
        return list(zip(rows.unbind(), indices, strict=True))


def photos() -> Photos:
    return _lengthened(Photos(str(PHOTOS), PHOTO_FILES))


def photo_tensors() -> Photos:
    return _lengthened(PhotoTensors(str(PHOTOS), PHOTO_FILES))


def _lengthened(photos: Photos) -> Photos:
    make_files(PHOTOS, PHOTO_FILES)
    photos.paths = [photos.paths[number % PHOTO_FILES] for number in range(PHOTOS_LENGTH)]
    return photos


def rows() -> Rows:
    if not ROWS_FILE.exists():
        made = ROWS_FILE.with_suffix(".new.npy")
        np.save(made, np.random.default_rng(0).integers(0, 256, (ROWS, *ROW_SHAPE), dtype=np.uint8))
        made.replace(ROWS_FILE)
    return Rows()


WORKLOADS = {
    "tiny": Workload(name="tiny", make=Tiny, batch_size=64, batches=100),
    "jpeg": Workload(name="jpeg", make=photo_tensors, batch_size=32, batches=20),
    "jpeg, cut": Workload(name="jpeg, cut", make=photos, batch_size=32, batches=20),
    "64 MiB": Workload(name="64 MiB", make=Large, batch_size=8, batches=20),
    "together": Workload(name="together", make=rows, batch_size=256, batches=100),
}


def workload(name: str) -> Workload:
    """One of WORKLOADS, or FILE.py: it gives ``dataset()`` and may give ``collate``, ``BATCH_SIZE`` and ``BATCHES``."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    spec = importlib.util.spec_from_file_location("workload", name)
    if spec is None or spec.loader is None or not Path(name).exists():
        raise SystemExit(f"--workload is one of {', '.join(WORKLOADS)}, or a Python file; {name} is neither")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a pickle of its dataset finds the class
    spec.loader.exec_module(module)
    return Workload(
        name=Path(name).stem,
        make=module.dataset,
        batch_size=getattr(module, "BATCH_SIZE", 32),
        batches=getattr(module, "BATCHES", 50),
        collate=getattr(module, "collate", None),
    )
