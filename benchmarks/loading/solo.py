"""One round of one loader, in a process of its own: PEER WORKERS WORKLOAD. The last line printed is JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.loading.costs import PeakMemory, costs_of, tree
from benchmarks.loading.workloads import Workload, workload
from trials.data.core.sample_layout import mapped

LOOK_S = 0.2
WARM_UP_S, WARM_UP_BATCHES = 1.0, 20  # at least both: twice what any of the loaders fetches ahead, and its memory
MEASURED_S = 3.0  # at least, in whole batches


def main() -> int:
    peer, workers, name = sys.argv[1:4]
    load = workload(name)
    batches, end = LOADERS[peer](load, workers)
    next(batches)
    memory = PeakMemory(every_s=LOOK_S)
    taken(batches, seconds=WARM_UP_S, least=WARM_UP_BATCHES)
    peak = memory.stop()  # before the clock: a look takes a core for milliseconds
    before = costs_of(tree(os.getpid()))
    count, taken_s = taken(batches, seconds=MEASURED_S, least=load.batches)
    costs = costs_of(tree(os.getpid())) - before
    begun = time.perf_counter()
    end()
    row = {
        "samples_s": count * load.batch_size / taken_s,
        "cpu_us": 1e6 * costs.cpu_s / (count * load.batch_size),
        "faults": costs.faults / (count * load.batch_size),
        "peak_mib": peak / 2**20,
        "close_ms": 1e3 * (time.perf_counter() - begun),
        "batches": count,
        "measured_s": taken_s,
    }
    print(json.dumps(row), flush=True)
    os._exit(0)  # a peer that does not end must not hold up the others


def taken(batches: Iterator[Any], *, seconds: float, least: int) -> tuple[int, float]:
    """How many were taken, each dropped unread, and the time: ``seconds`` and ``least`` batches at least."""
    count, begun = 0, time.perf_counter()
    while True:
        next(batches)
        count += 1
        passed = time.perf_counter() - begun
        if passed >= seconds and count >= least:
            return count, passed


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
    """With a snapshot of its state every 100 batches, as its page advises, instead of one for each."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        load.make(),
        load.batch_size,
        shuffle=True,
        num_workers=int(workers),
        collate_fn=load.collate,
        persistent_workers=True,
        snapshot_every_n_steps=100,
    )
    return _endless(loader), lambda: None


def grains(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its threads, each of which makes whole batches. With 0, as grain advises for what is in memory, none."""
    import grain

    options = grain.ReadOptions(num_threads=int(workers), prefetch_buffer_size=2 * int(workers))
    return iter(_grain_batches(load, _collate(load)).to_iter_dataset(options)), lambda: None


def grains_processes(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its processes, which hand over arrays of NumPy in shared memory; here they become tensors again."""
    import grain

    options = grain.MultiprocessingOptions(num_workers=int(workers), per_worker_buffer_size=2)
    arrays = _grain_batches(load, Arrays(_collate(load))).to_iter_dataset(grain.ReadOptions(1, 2)).mp_prefetch(options)
    iterator = iter(arrays)
    return (mapped(batch, torch.from_numpy) for batch in iterator), iterator.close


def _grain_batches(load: Workload, collate: Callable[[list[Any]], Any]) -> Any:
    import grain

    dataset, size = load.make(), load.batch_size
    if hasattr(dataset, "__getitems__"):
        indices = grain.MapDataset.range(len(dataset)).shuffle(seed=0).repeat()
        return indices.batch(size, batch_fn=list).map(Loaded(dataset, collate))
    return grain.MapDataset.source(dataset).shuffle(seed=0).repeat().batch(size, batch_fn=collate)


def spdls(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    """Its threads, each of which makes whole batches, in order."""
    from spdl.pipeline import PipelineBuilder

    dataset, rng, size = load.make(), np.random.default_rng(0), load.batch_size

    def indices() -> Iterator[list[int]]:
        while True:
            order = rng.permutation(len(dataset))
            for begin in range(0, len(order), size):
                yield order[begin : begin + size].tolist()

    count = int(workers)
    pipeline = (
        PipelineBuilder()
        .add_source(indices())
        .pipe(Loaded(dataset, _collate(load)), concurrency=count, output_order="input")
        .add_sink(2 * count)
        .build(num_threads=count)
    )
    pipeline.start()
    return iter(pipeline.get_iterator()), pipeline.stop


class Loaded:
    """The batch of a list of indices."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self.dataset, self.collate = dataset, collate

    def __call__(self, indices: list[int]) -> Any:
        if hasattr(self.dataset, "__getitems__"):
            return self.collate(self.dataset.__getitems__(indices))
        return self.collate([self.dataset[index] for index in indices])


class Arrays:
    """A batch of tensors as arrays that share their memory."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> Any:
        return mapped(self.collate(list(samples)), torch.Tensor.numpy)


def _collate(load: Workload) -> Callable[[list[Any]], Any]:
    from torch.utils.data import default_collate

    return load.collate or default_collate


LOADERS: dict[str, Callable[[Workload, str], tuple[Iterator[Any], Callable[[], None]]]] = {
    "ours": ours,
    "ours, processes": ours_in_processes,
    "ours, threads": ours_in_threads,
    "torch": torchs,
    "torch, malloc kept": torchs,  # by the environment that it is given
    "torch, persistent workers": torchs_that_stay,
    "torchdata": torchdatas,
    "grain": grains,
    "grain, processes": grains_processes,
    "spdl": spdls,
}


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


if __name__ == "__main__":
    sys.exit(main())
