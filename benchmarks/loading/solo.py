"""One round of one loader, in a process of its own: PEER WORKERS WORKLOAD. The last line printed is JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.loading.costs import PeakMemory, costs_of, tree
from benchmarks.loading.workloads import Workload, workload

LOOK_S = 1.0
WARM_UP = 10  # batches: by then every loader has its memory, and what it fetches ahead


def main() -> int:
    peer, workers, name = sys.argv[1:4]
    load = workload(name)
    batches, end = LOADERS[peer](load, workers)
    for _ in range(WARM_UP):
        next(batches)
    memory = PeakMemory(every_s=LOOK_S)
    before, begun = costs_of(tree(os.getpid())), time.perf_counter()
    count = sum(1 for _, _ in zip(range(load.batches), batches, strict=False))
    taken_s = time.perf_counter() - begun
    costs, peak = costs_of(tree(os.getpid())) - before, memory.stop()
    begun = time.perf_counter()
    end()
    row = {
        "samples_s": count * load.batch_size / taken_s,
        "cpu_us": 1e6 * costs.cpu_s / (count * load.batch_size),
        "faults": costs.faults / (count * load.batch_size),
        "peak_mib": peak / 2**20,
        "close_ms": 1e3 * (time.perf_counter() - begun),
    }
    print(json.dumps(row), flush=True)
    os._exit(0)  # a peer that does not end must not hold up the others


def ours(load: Workload, workers: str, **options: Any) -> tuple[Iterator[Any], Callable[[], None]]:
    from trials.data import AsyncDataLoader

    count = workers if workers == "auto" else int(workers)
    loader = AsyncDataLoader(
        load.make(), load.batch_size, shuffle=True, num_workers=count, collate_fn=load.collate, **options
    )
    return _endless(loader), loader.close


def ours_in_threads(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    return ours(load, workers, worker_type="thread")


def ours_in_processes(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    return ours(load, workers, worker_type="process")


def torchs(load: Workload, workers: str, *, persistent: bool = False) -> tuple[Iterator[Any], Callable[[], None]]:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        load.make(),
        load.batch_size,
        shuffle=True,
        num_workers=int(workers),
        collate_fn=load.collate,
        persistent_workers=persistent,
    )
    return _endless(loader), lambda: None


def torchs_that_stay(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its workers are not started anew for each epoch."""
    return torchs(load, workers, persistent=True)


def torchdatas(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        load.make(), load.batch_size, shuffle=True, num_workers=int(workers), collate_fn=load.collate
    )
    return _endless(loader), lambda: None


def grains(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its threads, as ``MapDataset.to_iter_dataset`` runs them."""
    import grain
    from torch.utils.data import default_collate

    dataset = grain.MapDataset.source(load.make()).shuffle(seed=0).repeat()
    options = grain.ReadOptions(num_threads=int(workers), prefetch_buffer_size=2 * int(workers) * load.batch_size)
    iterator = dataset.to_iter_dataset(options).batch(load.batch_size, batch_fn=load.collate or default_collate)
    return iter(iterator), lambda: None


def spdls(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its threads: ``PipelineBuilder``, samples piped in parallel and in order."""
    import numpy as np
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import default_collate

    dataset, rng = load.make(), np.random.default_rng(0)

    def indices() -> Iterator[int]:
        while True:
            yield from rng.permutation(len(dataset)).tolist()

    count = int(workers)
    pipeline = (
        PipelineBuilder()
        .add_source(indices())
        .pipe(dataset.__getitem__, concurrency=count, output_order="input")
        .aggregate(load.batch_size)
        .pipe(load.collate or default_collate)
        .add_sink(2 * count)
        .build(num_threads=count + 1)
    )
    pipeline.start()
    return iter(pipeline.get_iterator()), pipeline.stop


LOADERS: dict[str, Callable[[Workload, str], tuple[Iterator[Any], Callable[[], None]]]] = {
    "ours": ours,
    "ours, processes": ours_in_processes,
    "ours, threads": ours_in_threads,
    "torch": torchs,
    "torch, persistent workers": torchs_that_stay,
    "torchdata": torchdatas,
    "grain": grains,
    "spdl": spdls,
}


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


if __name__ == "__main__":
    sys.exit(main())
