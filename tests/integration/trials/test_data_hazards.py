"""What goes wrong while data is loaded, and what becomes of it: an error in its place, never a hang, nothing left."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data_samples import (
    Counted,
    Deadly,
    Numbers,
    Raising,
    Remembering,
    Stuck,
    indices_of,
    jittered,
    refusing_batch,
)
from tests.processes_left import descendants, held
from tests.waiting import wait_until
from trials.data import (
    AsyncDataLoader,
    DataLoadingError,
    DatasetMismatch,
    LoaderClosed,
    LoaderTimeout,
    SampleError,
    StateError,
    WorkerDied,
)
from trials.data.workers.prefetcher import Prefetcher
from trials.data.workers.worker_pool import ProcessPool

PATIENCE_S = 60.0  # the cores are shared
WORKERS = [{"num_workers": 2, "worker_type": "process"}, {"num_workers": 2, "worker_type": "thread"}]
EVERY = [{"num_workers": 0}, *WORKERS]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = held()
    yield
    wait_until(lambda: not left_since(before) or (gc.collect() > 0 and not left_since(before)), PATIENCE_S)


def left_since(before: tuple[set[int], set[str], set[str]]) -> list[str]:
    processes, descriptors, threads = held()
    new = {d for d in descriptors - before[1] if any(kind in d for kind in ("memfd", "socket", "pidfd", "pipe"))}
    return [*map(str, processes - before[0]), *new, *(threads - before[2])]


def a_loader(dataset: Any, batch_size: int = 4, **options: Any) -> AsyncDataLoader:
    return AsyncDataLoader(dataset, batch_size, **options)


def pool_of(loader: AsyncDataLoader) -> ProcessPool:
    prefetcher = loader.workers
    assert isinstance(prefetcher, Prefetcher)
    assert isinstance(prefetcher.pool, ProcessPool)
    return prefetcher.pool


def workers_of(loader: AsyncDataLoader, count: int = 2) -> dict[int, int]:
    """Worker -> process id, once all have been started."""
    wait_until(lambda: len(pool_of(loader).pids) == count, PATIENCE_S)
    return pool_of(loader).pids


def taken_until_an_error(loader: AsyncDataLoader) -> tuple[list[Any], DataLoadingError]:
    batches: list[Any] = []
    try:
        for batch in loader:
            batches.append([part.clone() for part in batch])  # noqa: PERF401  # those before the error count
    except DataLoadingError as error:
        return batches, error
    raise AssertionError("nothing was raised")


# ── errors ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("way", EVERY, ids=str)
@pytest.mark.parametrize("chunk", [1, 3, None])
def test_an_error_comes_after_the_good_batches_before_it_and_names_its_sample(
    way: dict[str, Any], chunk: int | None
) -> None:
    with a_loader(Raising(22, 13), chunk_size=chunk, **way) as loader:
        batches, error = taken_until_an_error(loader)

        assert indices_of(batches) == list(range(12))
        assert isinstance(error, SampleError)
        assert error.index == 13
        assert "row 13 is damaged" in str(error)
        assert isinstance(error.__cause__, LookupError)
        assert error.worker in ({0, 1} if way["num_workers"] else {"the calling process"})


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_after_an_error_the_next_batch_can_be_had_and_a_state_still_says_the_bad_one_is_due(
    way: dict[str, Any],
) -> None:
    with a_loader(Raising(13), **way) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        with pytest.raises(SampleError):
            next(iterator)
        assert loader.state_dict()["delivered"] == 12

        assert next(iterator)[1].tolist() == [16, 17, 18, 19]
        assert loader.state_dict()["delivered"] == 20


@pytest.mark.parametrize("way", EVERY, ids=str)
@pytest.mark.parametrize("wide", [5, 5000])
def test_bad_samples_are_left_out_and_counted_where_that_is_asked_for(way: dict[str, Any], wide: int) -> None:
    dataset = Raising(1, 4, 5, 6, 7, 39)
    dataset.rows = torch.zeros(40, wide)
    with a_loader(dataset, on_error="skip", **way) as loader:
        batches = list(loader)

        assert indices_of(batches) == [i for i in range(40) if i not in {1, 4, 5, 6, 7, 39}]
        assert [len(indices) for _, indices in batches] == [3, *[4] * 7, 3], "a batch of bad samples alone is no batch"
        assert loader.stats()["skipped"] == 6


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_an_error_of_collate_fn_says_so(way: dict[str, Any]) -> None:
    with a_loader(Numbers(8), collate_fn=refusing_batch, **way) as loader:
        with pytest.raises(SampleError, match=r"collating them.*4 samples do not go together") as raised:
            next(iter(loader))

        assert isinstance(raised.value.__cause__, ValueError)


def test_an_exception_that_cannot_be_pickled_is_told_in_words() -> None:
    with a_loader(Unpicklable(), num_workers=1) as loader, pytest.raises(SampleError, match="holds a lock"):
        next(iter(loader))


class Unpicklable(Numbers):
    def __getitem__(self, index: int) -> Any:
        class LocalError(Exception):
            pass

        raise LocalError("holds a lock")


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────
def test_a_sample_that_kills_its_worker_is_named_after_two_retries(tmp_path: Path) -> None:
    with a_loader(Deadly(13, tmp_path), num_workers=2) as loader:
        batches, error = taken_until_an_error(loader)

        assert indices_of(batches) == list(range(12))
        assert isinstance(error, WorkerDied)
        assert error.signal == signal.SIGKILL
        assert error.indices == (13,)
        assert "want of memory" in str(error)
        assert len(list(tmp_path.iterdir())) == 3


def test_a_worker_that_exits_is_a_death_with_its_code(tmp_path: Path) -> None:
    with a_loader(Deadly(5, tmp_path, exit_code=7), num_workers=1) as loader:
        _, error = taken_until_an_error(loader)

        assert isinstance(error, WorkerDied)
        assert error.exit_code == 7


@pytest.mark.parametrize("chunk", [1, 2, None])
def test_a_worker_killed_now_and_then_costs_no_sample(tmp_path: Path, chunk: int | None) -> None:
    with a_loader(Deadly(13, tmp_path, times=2), num_workers=2, chunk_size=chunk) as loader:
        assert indices_of(list(loader)) == list(range(40))
        assert loader.stats()["worker_deaths"] == 2


def test_a_worker_killed_while_it_has_nothing_to_do_is_replaced() -> None:
    with a_loader(Numbers(400), num_workers=2) as loader:
        iterator = iter(loader)
        first = next(iterator)[1].tolist()
        before = workers_of(loader)
        os.kill(before[1], signal.SIGKILL)
        wait_until(lambda: pool_of(loader).pids.get(1, before[1]) != before[1], PATIENCE_S)

        assert first + [int(i) for _, indices in iterator for i in indices] == list(range(400))


def server_of(loader: AsyncDataLoader) -> int | None:
    """None for the moment in which a dead one is replaced."""
    with contextlib.suppress(RuntimeError):
        return int(pool_of(loader).server_pid)
    return None


def test_a_killed_fork_server_takes_its_workers_along_and_is_replaced() -> None:
    with a_loader(Numbers(400), num_workers=2, transform=jittered) as loader:
        iterator = iter(loader)
        next(iterator)
        server, workers = pool_of(loader).server_pid, workers_of(loader)
        os.kill(server, signal.SIGKILL)

        assert len(list(iterator)) == 99
        wait_until(lambda: server_of(loader) not in {None, server}, PATIENCE_S)
        assert not set(workers.values()) & descendants(os.getpid())


def test_a_worker_that_is_busy_ends_with_its_fork_server(tmp_path: Path) -> None:
    """One that waits for work would notice the end of its channel; this one never looks at it."""
    gate = tmp_path / "gate"
    with a_loader(Stuck(5, gate), num_workers=1, worker_type="process", chunk_size=4) as loader:
        iterator = iter(loader)
        next(iterator)
        server, workers = pool_of(loader).server_pid, list(workers_of(loader, 1).values())
        os.kill(server, signal.SIGKILL)

        try:
            wait_until(lambda: not alive(workers), PATIENCE_S)
        finally:
            gate.touch()
        assert len(list(iterator)) == 9


def test_a_worker_that_cannot_even_start_is_an_error_not_a_loop() -> None:
    with (
        a_loader(Numbers(40), num_workers=1, worker_init_fn=_exit_at_once) as loader,
        pytest.raises(WorkerDied, match="code 3"),
    ):
        list(loader)


def _exit_at_once(worker: int) -> None:
    os._exit(3)


# ── waiting ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_what_a_worker_changes_in_its_dataset_is_seen_by_nobody_else(way: dict[str, Any]) -> None:
    dataset = Remembering()
    with a_loader(dataset, **way) as loader:
        assert len(list(loader)) == 10

    looked_at_in_the_trial = {"process": [], "thread": [0, 1]}  # whether they draw from generators that threads share
    assert dataset.asked == looked_at_in_the_trial[way["worker_type"]]


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_sample_that_takes_too_long_is_named_with_its_worker_and_stack(way: dict[str, Any], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with a_loader(Stuck(5, gate), timeout=3, chunk_size=4, **way) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(LoaderTimeout) as raised:
            next(iterator)
        gate.touch()

        assert raised.value.index == 5
        assert raised.value.worker in {0, 1}
        assert "stuck_here" in raised.value.stack
        wait_until(lambda: _next_or_none(iterator) is not None, PATIENCE_S)


def _next_or_none(iterator: Iterator[Any]) -> Any:
    try:
        return next(iterator)
    except LoaderTimeout:
        return None


def test_no_more_is_asked_for_than_was_taken_and_the_prefetch(tmp_path: Path) -> None:
    dataset = Counted(tmp_path)
    with a_loader(dataset, num_workers=2, prefetch_factor=2, chunk_size=4) as loader:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        wait_until(lambda: len(set(dataset.asked())) == 4 * (5 + 2 * 2), PATIENCE_S)
    asked = dataset.asked()

    assert set(asked) == set(range(4 * 9))
    assert len(asked) - len(set(asked)) <= 9, "a few are tried at the start; some more by threads, where they are slow"


# ── the end ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("way", EVERY, ids=str)
def test_the_end_of_the_data_is_the_end_every_time(way: dict[str, Any]) -> None:
    with a_loader(Numbers(10), **way) as loader:
        for _ in range(3):
            iterator = iter(loader)
            assert len(list(iterator)) == 3
            assert next(iterator, "ended") == "ended"
        assert loader.epoch == 3


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_next_after_close_says_so_instead_of_returning_nothing(way: dict[str, Any]) -> None:
    loader = a_loader(Numbers(40), **way)
    iterator = iter(loader)
    next(iterator)

    loader.close()
    loader.close()

    with pytest.raises(LoaderClosed):
        next(iterator)
    with pytest.raises(LoaderClosed):
        iter(loader)


def test_an_iterator_whose_place_was_taken_says_so() -> None:
    with a_loader(Numbers(40), num_workers=1) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)

        with pytest.raises(LoaderClosed, match="another iteration"):
            next(first)
        assert loader.epoch == 1
        assert len(list(second)) == 10


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_batches_outlive_their_loader(way: dict[str, Any]) -> None:
    loader = a_loader(Numbers(40), **way)
    iterator = iter(loader)
    kept = [next(iterator), next(iterator)]
    loader.close()

    assert indices_of(kept) == list(range(8))
    kept.clear()


def test_an_idle_loader_closes_quickly() -> None:
    loader = a_loader(Numbers(400), num_workers=2)
    next(iter(loader))

    begun = time.monotonic()
    loader.close()

    assert time.monotonic() - begun < 2  # 0.05 s on two quiet cores


def test_a_worker_stuck_in_c_is_stopped_at_the_deadline(tmp_path: Path) -> None:
    loader = a_loader(Stuck(5, tmp_path / "never"), num_workers=1, chunk_size=4)
    iterator = iter(loader)
    next(iterator)
    (pid,) = workers_of(loader, 1).values()
    begun = time.monotonic()

    loader.close(timeout=0.3)

    assert time.monotonic() - begun < 3  # 0.3 + 0.5 s on two quiet cores
    assert pid not in descendants(os.getpid())


def test_a_loader_that_nobody_holds_any_more_ends() -> None:
    loader = a_loader(Numbers(40), num_workers=2)
    next(iter(loader))
    pids = set(workers_of(loader).values())

    del loader

    gc.collect()  # a loader and its iterator hold each other
    wait_until(lambda: not pids & descendants(os.getpid()), PATIENCE_S)


PARENT = """
import sys, json
from tests.data_samples import Numbers
from trials.data import AsyncDataLoader
if __name__ == "__main__":
    {before}
    loader = AsyncDataLoader(Numbers(10_000), 4, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    pool = loader.workers.pool
    print(json.dumps([pool.server_pid, *pool.pids.values()]), flush=True)
    for batch in iterator:
        sys.stdin.readline()
"""


def run_parent(before: str = "pass") -> tuple[subprocess.Popen[str], list[int]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(before=before)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    return parent, json.loads(parent.stdout.readline())


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "before", ["pass", "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"]
)
def test_a_killed_trial_leaves_no_process_and_no_memory(before: str) -> None:
    parent, pids = run_parent(before)
    with parent:
        parent.kill()
        parent.wait()

        wait_until(lambda: not alive(pids), PATIENCE_S)
    assert not [name for name in os.listdir("/dev/shm") if "trials" in name]  # noqa: PTH208  # names are enough


def test_ctrl_c_reaches_the_trial_and_not_its_workers() -> None:
    with a_loader(Numbers(400), num_workers=2, worker_type="process") as loader:
        iterator = iter(loader)
        next(iterator)
        for pid in workers_of(loader).values():
            os.kill(pid, signal.SIGINT)

        assert len(list(iterator)) == 99
        assert loader.stats()["worker_deaths"] == 0


def test_what_cannot_be_pickled_is_refused_where_a_fork_is_not_safe() -> None:
    script = """
import threading
from tests.data_samples import Numbers
from trials.data import AsyncDataLoader
threading.Thread(target=threading.Event().wait, daemon=True, name="of somebody").start()
try:
    next(iter(AsyncDataLoader(Numbers(4), 2, num_workers=1, collate_fn=lambda samples: samples)))
except TypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert re.search(r"thread 'of somebody' runs.*define them at the top level", done.stdout)


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ, reason="a thread of pytest-xdist is at work, beside which no fork is safe"
)
def test_a_second_loader_can_be_forked_beside_the_first() -> None:
    with (
        a_loader(Numbers(40), num_workers=1) as first,
        a_loader(a_local_dataset(), num_workers=1, collate_fn=lambda s: s) as other,
    ):
        next(iter(first))
        assert next(iter(other)) == ["a closure is enough for a fork"] * 4


def a_local_dataset() -> Any:
    text = "a closure is enough for a fork"

    class Inner(Numbers):
        def __getitem__(self, index: int) -> Any:
            return text

    return Inner(8)


# ── states ──────────────────────────────────────────────────────────────────────────────────────
def test_a_state_is_small_and_quick_at_any_position() -> None:
    dataset = Huge()
    with AsyncDataLoader(dataset, 256, shuffle=True, num_workers=0, seed=2**62) as loader:
        begun = time.perf_counter()
        state = loader.state_dict()
        state["delivered"] = 10**12 // 2
        loader.load_state_dict(state)
        taken_s = time.perf_counter() - begun

        assert len(json.dumps(loader.state_dict())) < 300
        assert len(pickle.dumps(loader.state_dict())) < 300
        assert taken_s < 0.05  # 0.05 ms on two quiet cores
        assert len(next(iter(loader))) == 256


class Huge:
    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, index: int) -> int:
        return index


def test_a_state_of_another_dataset_is_refused_and_nothing_changes() -> None:
    with a_loader(Numbers(40)) as loader, a_loader(Numbers(41)) as other:
        next(iter(loader))

        with pytest.raises(DatasetMismatch):
            other.load_state_dict(loader.state_dict())
        assert other.state_dict()["delivered"] == 0


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"delivered": -1}, {"delivered": "4"}, {"epoch": None}, {"order": "torch"}, {"batch_size": 2.0}],
    ids=str,
)
def test_a_state_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    with a_loader(Numbers(40)) as loader, pytest.raises(StateError):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_set_epoch_keeps_the_position_of_the_epoch_under_way() -> None:
    with a_loader(Numbers(40), shuffle=True) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with a_loader(Numbers(40), shuffle=True) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert len(list(loader)) == 9
        loader.set_epoch(5)
        assert loader.epoch == 5
        assert len(list(loader)) == 10
