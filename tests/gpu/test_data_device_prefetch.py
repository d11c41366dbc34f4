"""Batches on a real CUDA device: uncorrupted under memory pressure, and copied beside the computation."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import torch

from trials.data import AsyncDataLoader, SharedDataLoader

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


class Large:
    """16 MiB a batch of 4, made at once: it arrives sooner than the device has read the one before."""

    def __init__(self) -> None:
        self.row = torch.ones(1 << 20)

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        return self.row


def test_the_device_reads_batches_where_the_workers_wrote_them() -> None:
    with AsyncDataLoader(Large(), 4, num_workers=2, worker_type="process", device="cuda") as loader:
        torch.cuda.synchronize()
        began = time.monotonic()
        for batch in loader:
            assert batch.is_cuda
        torch.cuda.synchronize()
        print(json.dumps({"mib_a_second": 100 * 16 / (time.monotonic() - began)}))
        workers: Any = loader._own.workers

        assert workers._pinned.pinned
        assert loader.stats()["held_copies"] == 0


def seconds_of_an_epoch(loader: Any, *, copy: bool) -> float:
    """With as much computation for each batch as takes about as long as its copy."""
    square = torch.ones(2048, 2048, device="cuda")
    began = 0.0
    for number, (images, _) in enumerate(loader):
        if number == 2:  # the workers have started
            torch.cuda.synchronize()
            began = time.monotonic()
        there = images.to("cuda") if copy else images
        for _ in range(4):
            square = torch.tanh(square @ square / 2048)
        there.sum()
    torch.cuda.synchronize()
    return time.monotonic() - began


def test_copies_run_beside_the_computation() -> None:
    with AsyncDataLoader(Patterns(), 16, num_workers=2, device="cuda") as ahead:
        seconds_of_an_epoch(ahead, copy=False)
        beside = seconds_of_an_epoch(ahead, copy=False)
    with AsyncDataLoader(Patterns(), 16, num_workers=2) as plain:
        seconds_of_an_epoch(plain, copy=True)
        between = seconds_of_an_epoch(plain, copy=True)

    print(json.dumps({"copied_beside_s": beside, "copied_between_s": between}))
    assert beside < 1.1 * between


def test_shared_batches_arrive_on_the_device_uncorrupted() -> None:
    with SharedDataLoader(Patterns(), 16, device="cuda") as loader:
        for images, labels in loader:
            pressure = torch.empty(64 << 20, device="cuda").fill_(-1.0)
            assert images.is_cuda
            assert bool((images == labels.to(torch.float32).reshape(-1, 1, 1).expand_as(images)).all())
            del pressure
