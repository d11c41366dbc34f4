"""One round of one loader, in a process of its own: PEER WORKERS WORKLOAD. The last line printed is JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.loading.workloads import Workload, workload

LOOK_S = 1.0  # a look costs milliseconds for each process


def main() -> int:
    peer, workers, name = sys.argv[1:4]
    load = workload(name)
    batches, end = LOADERS[peer](load, workers)
    next(batches)
    memory = Memory()
    cpu, begun = processor_s(), time.perf_counter()
    count = sum(1 for _, _ in zip(range(load.batches), batches, strict=False))
    taken_s = time.perf_counter() - begun
    cpu_s, peak = processor_s() - cpu, memory.stop()
    begun = time.perf_counter()
    end()
    row = {
        "samples_s": count * load.batch_size / taken_s,
        "cpu_us": 1e6 * cpu_s / (count * load.batch_size),
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


def torchs(load: Workload, workers: str) -> tuple[Iterator[Any], Callable[[], None]]:
    from torch.utils.data import DataLoader

    loader = DataLoader(load.make(), load.batch_size, shuffle=True, num_workers=int(workers), collate_fn=load.collate)
    return _endless(loader), lambda: None


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
    "torchdata": torchdatas,
    "grain": grains,
    "spdl": spdls,
}


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


# ── what it costs ───────────────────────────────────────────────────────────────────────────────
def processor_s() -> float:
    """Of this process and of all below it, those that ended included."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = sum(_stat_s(pid) for pid in below(os.getpid()))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + alive


def _stat_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text(encoding="ascii").split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


class Memory:
    """The peak of the proportional set size of this process and all below it."""

    def __init__(self) -> None:
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while True:
            self._peak = max(self._peak, sum(_pss(pid) for pid in (os.getpid(), *below(os.getpid()))))
            if self._done.wait(LOOK_S):
                return


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    sys.exit(main())
