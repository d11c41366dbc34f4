"""Batches on a real CUDA device: uncorrupted under memory pressure, and copied beside the computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trials.data import AsyncDataLoader

pytestmark = pytest.mark.gpu


class Patterns:
    """Sample ``i`` is filled with ``i``, so that a byte out of place is seen."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.full((256, 1024), float(index)), index


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_arrive_uncorrupted_while_memory_is_taken_and_given_back(workers: int) -> None:
    with AsyncDataLoader(Patterns(), 16, shuffle=True, num_workers=workers, device="cuda") as loader:
        for images, labels in loader:
            pressure = torch.empty(64 << 20, device="cuda").fill_(-1.0)
            assert images.is_cuda
            expected = labels.to(torch.float32).reshape(-1, 1, 1).expand_as(images)
            assert bool((images == expected).all())
            del pressure


def test_pinned_batches_are_pinned() -> None:
    with AsyncDataLoader(Patterns(), 4, pin_memory=True) as loader:
        images, _ = next(iter(loader))

    assert images.is_pinned()
