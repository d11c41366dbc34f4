"""``num_workers="auto"``: who makes the batches follows from what samples and batches cost."""

from __future__ import annotations

import os
from typing import Any

import pytest

from trials.data import AsyncDataLoader, own_batches
from trials.data.workers.inline import InlineBatches


@pytest.mark.parametrize(
    ("sample_s", "batch_size", "by_workers"),
    [(4e-6, 64, False), (40e-6, 64, False), (40e-6, 256, True), (60e-6, 8, True), (1e-3, 1, True)],
)
def test_workers_make_what_costs_the_trial_more_than_handing_it_over(
    monkeypatch: pytest.MonkeyPatch, sample_s: float, batch_size: int, *, by_workers: bool
) -> None:
    asked: list[int] = []

    class Asked(InlineBatches):
        def __init__(self, recipe: Any, options: Any, stats: Any) -> None:
            super().__init__(recipe, stats)
            asked.append(options.workers)

    monkeypatch.setattr(own_batches, "Prefetcher", Asked)
    monkeypatch.setattr(InlineBatches, "time_of", lambda _, items: sample_s * len(items))
    with AsyncDataLoader(list(range(1000)), batch_size, num_workers="auto") as loader:
        next(iter(loader))

    assert asked == ([min(len(os.sched_getaffinity(0)), own_batches.AUTO_WORKERS_LIMIT)] if by_workers else [])
