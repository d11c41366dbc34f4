"""Of our loader alone: how long a close takes, what four idle workers cost, how large a position is.

Others (torchdata, grain) have positions, too; these are bounds for ours, and no comparison.
"""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from statistics import median
from typing import Any

from benchmarks.loading.costs import costs_of, tree
from benchmarks.loading.workloads import Tiny
from benchmarks.writing import Row
from trials.data import AsyncDataLoader

IDLE_S = 5.0
STUCK_TIMEOUT_S = 0.5
TAKES = 200


class Stuck(Tiny):
    """The second batch never comes."""

    def __getitem__(self, index: int) -> Any:
        if index >= 64:
            time.sleep(3600)
        return super().__getitem__(index)


def measure(rounds: int) -> list[Row]:
    found = [_round() for _ in range(rounds)]
    limits = {
        "close, idle (s)": 0.3,
        "close, a worker stuck in C (s)": STUCK_TIMEOUT_S + 0.5,
        "idle, 4 workers (% of a core)": 0.1,
        "state (bytes)": 300,
        "state taken and loaded (ms)": 1.0,
    }
    return [
        {"what": name, "ours": median(row[name] for row in found), "accept": f"≤ {limits[name]:g}"} for name in limits
    ]


def _round() -> dict[str, float]:
    loader = AsyncDataLoader(Tiny(), 64, shuffle=True, num_workers=4)
    list(islice(iter(loader), 5))
    time.sleep(0.5)
    before = costs_of(tree(os.getpid()))
    time.sleep(IDLE_S)
    idle = 100 * (costs_of(tree(os.getpid())) - before).cpu_s / IDLE_S
    begun = time.perf_counter()
    for _ in range(TAKES):
        state = loader.state_dict()
    with AsyncDataLoader(Tiny(), 64, shuffle=True) as other:
        for _ in range(TAKES):
            other.load_state_dict(state)
    state_ms = 1e3 * (time.perf_counter() - begun) / TAKES
    begun = time.perf_counter()
    loader.close()
    idle_close = time.perf_counter() - begun
    stuck = AsyncDataLoader(Stuck(), 64, num_workers=1, chunk_size=64, prefetch_factor=1)
    iterator = iter(stuck)
    next(iterator)
    time.sleep(0.5)  # until the worker is inside
    begun = time.perf_counter()
    stuck.close(STUCK_TIMEOUT_S)
    return {
        "close, idle (s)": idle_close,
        "close, a worker stuck in C (s)": time.perf_counter() - begun,
        "idle, 4 workers (% of a core)": idle,
        "state (bytes)": float(len(json.dumps(state))),
        "state taken and loaded (ms)": state_ms,
    }
