"""Sources without an index: iterables, and data sources that hand out samples or functions."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data_samples import Coordinator, PlainStream, ShuffledStream, Square, Stream, jittered, refusing_batch, same
from tests.waiting import wait_until
from trials.checkpoints.saving import WriterThread
from trials.data import AsyncDataLoader, BrokenReferenceError, Reference, SampleError, SourceError, references
from trials.processes.forking import LoopThread, fork_if_safe

WAYS: list[dict[str, Any]] = [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 3}]


def drawn(loader: AsyncDataLoader, count: int | None = None) -> list[Any]:
    return list(itertools.islice(iter(loader), count))


# A worker that reads an iterable takes a second of a processor to begin: each way of going on is taken once.
GOES_ON = [(0, 0, (0, 1, 3, 7)), (0, 1, (3,)), (1, 0, (3,)), (1, 1, (1,)), (3, 1, (7,))]


@pytest.mark.parametrize(("workers", "then", "taken"), GOES_ON)
@pytest.mark.parametrize("make", [Stream, PlainStream])
def test_an_iterable_is_resumed_after_the_batch_delivered_last(
    workers: int, then: int, taken: tuple[int, ...], make: Any
) -> None:
    with AsyncDataLoader(make(30), 4, transform=jittered) as loader:
        whole = drawn(loader)
    assert len(whole) == 8
    for count in taken:
        with AsyncDataLoader(make(30), 4, transform=jittered, num_workers=workers) as loader:
            first = drawn(loader, count)
            state = loader.state_dict()
        with AsyncDataLoader(make(30), 4, transform=jittered, num_workers=then) as loader:
            loader.load_state_dict(state)
            assert same([*first, *drawn(loader)], whole), f"after {count}"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_iterable_is_read_anew_in_each_epoch(way: dict[str, Any]) -> None:
    with AsyncDataLoader(PlainStream(10), 4, drop_last=True, **way) as loader:
        assert [[b.tolist() for b in loader] for _ in range(2)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_iterable_that_raises_names_the_sample_after_the_good_batches(way: dict[str, Any]) -> None:
    with AsyncDataLoader(PlainStream(30, bad=9), 4, **way) as loader:
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(SampleError, match="line 9 is damaged") as raised:
            next(iterator)
        assert raised.value.index == 9


class Stateless(Stream):
    """Its state cannot be had."""

    def state_dict(self) -> dict[str, int]:
        raise LookupError("the state is lost")


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
def test_an_iterable_whose_state_cannot_be_had_says_so_in_the_place_of_its_batch(way: dict[str, Any]) -> None:
    with AsyncDataLoader(Stateless(30), 4, **way) as loader, pytest.raises(SampleError, match="the state is lost"):
        next(iter(loader))


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
def test_an_error_of_collate_fn_says_so_for_an_iterable_too(way: dict[str, Any]) -> None:
    with (
        AsyncDataLoader(Stream(30), 4, collate_fn=refusing_batch, **way) as loader,
        pytest.raises(SampleError, match=r"collating them.*4 samples do not go together"),
    ):
        next(iter(loader))


def test_a_killed_worker_reads_an_iterable_on_from_where_it_was() -> None:
    with AsyncDataLoader(Stream(200), 4, num_workers=1) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist()]
        pool: Any = loader.workers.pool  # type: ignore[union-attr]  # it has workers
        wait_until(lambda: 0 in pool.pids)
        os.kill(pool.pids[0], 9)
        found += [batch.tolist() for batch in iterator]

    assert list(itertools.chain.from_iterable(found)) == list(range(200))


def shuffled(way: dict[str, Any], **options: Any) -> AsyncDataLoader:
    return AsyncDataLoader(ShuffledStream(30), 4, seed=5, **way, **options)


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    """Three epochs of the stream that draws; the trial draws, too."""
    with shuffled({"num_workers": 1}) as loader:
        return [drawn(loader) for _ in range(3)]


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
def test_an_iterable_that_draws_gives_the_same_samples_each_once_and_leaves_the_trials_generators(
    way: dict[str, Any], undisturbed: list[Any]
) -> None:
    random.seed(len(WAYS))
    before = random.getstate(), torch.get_rng_state()
    with shuffled(way) as loader:
        assert same([drawn(loader) for _ in range(3)], undisturbed)

    assert [sorted(int(n) for batch in epoch for n in batch[0]) for epoch in undisturbed] == [list(range(30))] * 3
    assert len({tuple(epoch[0][1].tolist()) for epoch in undisturbed}) == 3, "each epoch draws other numbers"
    assert len({float(number) for batch in undisturbed[0] for number in batch[1]}) == 30, "and each sample"
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
def test_an_iterable_that_draws_is_read_over_with_the_same_numbers(way: dict[str, Any], undisturbed: list[Any]) -> None:
    for taken in (3,) if way["num_workers"] else (1, 3, 7):
        with shuffled(way) as loader:
            loader.set_epoch(1)
            first = drawn(loader, taken)
            state = loader.state_dict()
        with shuffled(way) as loader:
            loader.load_state_dict(state)
            rest = [drawn(loader) for _ in range(2)]
        assert same([[*first, *rest[0]], rest[1]], undisturbed[1:]), f"after {taken}"


def test_a_killed_worker_reads_an_iterable_that_draws_over_with_the_same_numbers(undisturbed: list[Any]) -> None:
    with shuffled({"num_workers": 1}, prefetch_factor=1) as loader:
        loader.set_epoch(1)
        iterator = iter(loader)
        found = [next(iterator) for _ in range(3)]
        wait_until(lambda: 0 in pool_of(loader).pids)
        os.kill(pool_of(loader).pids[0], 9)
        found += list(iterator)

    assert same(found, undisturbed[1])


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("functions", [True, False])
def test_a_data_source_is_asked_batch_by_batch_until_it_has_no_more(way: dict[str, Any], functions: bool) -> None:
    source = Coordinator(5, functions=functions)
    with AsyncDataLoader(source, 4, **way) as loader:
        found = [int(value) for batch in loader for value in batch[:, 0]]

    assert found == [n**2 for n in range(20)]
    assert source.asked == [4] * 5


class Told:
    """A source that is told the iteration; two epochs of three batches."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __call__(self, batch_size: int, cur_learner_iter: int) -> list[float] | None:
        self.told.append(cur_learner_iter)
        return None if len(self.told) % 4 == 0 else [float(cur_learner_iter)] * batch_size


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_source_that_names_it_is_told_the_iteration_its_batch_is_for(way: dict[str, Any]) -> None:
    source = Told()
    with AsyncDataLoader(source, 2, **way) as loader:
        found = [batch.tolist() for _ in range(2) for batch in loader]

    assert found == [[float(n)] * 2 for n in range(6)]
    assert source.told == [0, 1, 2, 3, 3, 4, 5, 6]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_after_a_restart_the_iteration_goes_on(way: dict[str, Any]) -> None:
    def source(batch_size: int, **told: int) -> list[float]:
        return [float(told["cur_learner_iter"])] * batch_size

    with AsyncDataLoader(source, 2, **way) as loader:
        drawn(loader, 5)
        state = loader.state_dict()
    with AsyncDataLoader(source, 2, **way) as loader:
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in drawn(loader, 2)] == [[5.0, 5.0], [6.0, 6.0]]
    with AsyncDataLoader(source, 2, **way) as loader:
        loader.load_state_dict({name: value for name, value in state.items() if name != "iteration"})
        assert drawn(loader, 1)[0].tolist() == [5.0, 5.0]


def test_functions_of_a_data_source_are_run_by_workers() -> None:
    with AsyncDataLoader(Coordinator(2, functions=True), 4, num_workers=1) as loader:
        pids = {int(pid) for batch in loader for pid in batch[:, 1]}

    assert pids
    assert os.getpid() not in pids


def test_a_data_source_is_asked_for_no_more_than_may_be_ahead() -> None:
    source = Coordinator(100, functions=True)
    with AsyncDataLoader(source, 2, num_workers=1, prefetch_factor=2) as loader:
        drawn(loader, 5)

    assert 5 <= len(source.asked) <= 5 + 2


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def pool_of(loader: AsyncDataLoader) -> Any:
    return loader.workers.pool  # type: ignore[union-attr]  # it has workers


def in_a_new_process(check: Callable[[], None]) -> None:
    """This process may have threads of libraries by now, beside which nothing is forked."""
    code = f"from tests.integration.trials.test_data_sources import {check.__name__} as check; check()"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


def test_workers_of_a_data_source_come_from_a_fork_of_the_trial_beside_its_own_thread_and_other_loaders() -> None:
    in_a_new_process(come_from_a_fork)


def test_a_fork_waits_for_a_checkpoint_that_is_being_written() -> None:
    in_a_new_process(forks_beside_a_writer)


def come_from_a_fork() -> None:
    with (
        AsyncDataLoader(Coordinator(9, functions=True), 4, num_workers=1) as loader,
        AsyncDataLoader(Coordinator(9, functions=True), 4, num_workers=1) as second,
        AsyncDataLoader(list(range(9)), 4, num_workers=1, worker_type="process") as third,
    ):
        iterators = []
        for one in (loader, second, third):
            iterators.append(iter(one))
            next(iterators[-1])
            assert command_of(pool_of(one).server_pid) == command_of(os.getpid())
            wait_until(lambda: all(not thread.busy() for thread in loop_threads()))


def loop_threads() -> list[LoopThread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, LoopThread)]


def test_beside_a_data_source_that_is_being_asked_nothing_is_forked() -> None:
    asked, answer = threading.Event(), threading.Event()

    def source(batch_size: int) -> list[int] | None:
        if not given:
            given.append(batch_size)
            return [1] * batch_size
        asked.set()
        answer.wait()
        return None

    given: list[int] = []
    with AsyncDataLoader(source, 4, num_workers=1) as loader:
        assert next(iter(loader)).tolist() == [1, 1, 1, 1]
        assert asked.wait(60)
        assert fork_if_safe()[0] is None
        answer.set()


def forks_beside_a_writer() -> None:
    writer = WriterThread(target=lambda: threading.Event().wait(0.2))
    writer.start()

    with AsyncDataLoader(list(range(9)), 4, num_workers=1, worker_type="process") as loader:
        next(iter(loader))
        assert command_of(pool_of(loader).server_pid) == command_of(os.getpid())
    writer.join()


def test_samples_that_come_ready_start_no_worker() -> None:
    with AsyncDataLoader(Coordinator(5, functions=False), 4, num_workers=2) as loader:
        assert len(drawn(loader)) == 5
        assert pool_of(loader).pids == {}


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_functions_after_ready_samples_start_the_workers(worker_type: str) -> None:
    batches = iter([[torch.tensor(1)] * 2, [torch.tensor(2)] * 2, [Square(3)] * 2, [Square(4)] * 2])
    with AsyncDataLoader(lambda _: next(batches, None), 2, num_workers=2, worker_type=worker_type) as loader:
        found = [batch.reshape(2, -1)[0, 0].item() for batch in loader]

    assert found == [1, 2, 9, 16]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("functions", [True, False])
def test_a_source_that_gives_more_samples_than_it_was_asked_for_is_told_so_after_its_good_batches(
    way: dict[str, Any], functions: bool
) -> None:
    make: Any = Square if functions else float
    batches = iter([[make(1)] * 4, [make(2)] * 5, [make(3)] * 4])
    with AsyncDataLoader(lambda _: next(batches, None), 4, **way) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(SourceError, match="asked for 4 samples and gave 5"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("drop_last", [True, False])
def test_only_the_last_batch_of_a_source_may_be_shorter(way: dict[str, Any], drop_last: bool) -> None:
    ends = iter([[1.0] * 4, [2.0] * 3])
    with AsyncDataLoader(lambda _: next(ends, None), 4, drop_last=drop_last, **way) as loader:
        assert [len(batch) for batch in loader] == ([4] if drop_last else [4, 3])
    goes_on = iter([[1.0] * 4, [2.0] * 3, [3.0] * 4])
    with AsyncDataLoader(lambda _: next(goes_on, None), 4, **way) as loader:
        iterator = iter(loader)
        assert [len(next(iterator)) for _ in range(2)] == [4, 3]
        with pytest.raises(SourceError, match="asked for 4 samples and gave 3, and then went on"):
            next(iterator)


def test_priorities_learnt_go_back_to_who_wants_them() -> None:
    source = Coordinator(5, functions=False)
    with AsyncDataLoader(source, 4) as loader:
        loader.update_priorities([1, 2], [0.5, 0.25])
    with AsyncDataLoader([1, 2, 3], 1) as plain, pytest.raises(TypeError, match="update_priorities"):
        plain.update_priorities([1], [0.5])

    assert source.priorities == {1: 0.5, 2: 0.25}


# ── references ──────────────────────────────────────────────────────────────────────────────────
def written(path: Path, value: Any, *, compressor: str = "none") -> Path:
    torch.save(value, path)
    if compressor == "zlib":
        path.write_bytes(zlib.compress(path.read_bytes()))
    return path


def test_a_reference_loads_and_cuts_a_trajectory_with_what_its_coordinator_said(tmp_path: Path) -> None:
    steps = [{"reward": torch.tensor(float(n))} for n in range(6)]
    written(tmp_path / "game-1", steps, compressor="zlib")
    metas = [
        {"data_id": "game-1", "compressor": "zlib", "unroll_len": 2, "unroll_split_begin": 3, "priority": 0.5},
        {"data_id": "game-1", "compressor": "zlib", "unroll_len": 1, "unroll_split_begin": 5},
    ]

    two, one = (reference() for reference in references(metas, folder=tmp_path))

    assert [float(step["reward"]) for step in two] == [3.0, 4.0]
    assert two[0]["priority"] == 0.5
    assert float(one["reward"]) == 5.0


def test_a_torn_or_missing_file_is_an_error_that_names_it_in_its_place(tmp_path: Path) -> None:
    torn = written(tmp_path / "torn", {"x": torch.ones(100)})
    torn.write_bytes(torn.read_bytes()[:-50])
    good = written(tmp_path / "good", {"x": torch.ones(100)})
    batches = iter([[Reference(path=good)] * 2, [Reference(path=good), Reference(path=torn)]])

    with AsyncDataLoader(lambda _: next(batches, None), 2, num_workers=1) as loader:
        iterator = iter(loader)
        assert next(iterator)["x"].shape == (2, 100)
        with pytest.raises(SampleError, match=r"torn could not be read in 5 tries") as raised:
            next(iterator)
    assert isinstance(raised.value.__cause__, BrokenReferenceError)
    with pytest.raises(BrokenReferenceError, match="away"):
        Reference(path=tmp_path / "away")()


def test_how_often_a_torn_file_is_tried_can_be_set(tmp_path: Path) -> None:
    away = {"data_id": "away"}
    [reference] = references([away], folder=tmp_path, tries=2, first_pause_s=0)
    with pytest.raises(BrokenReferenceError, match="away could not be read in 2 tries"):
        reference()
    for wrong, why in (
        ({"tries": 0}, "tries is a number from 1 to 1000, not 0"),
        ({"tries": 1001}, "not 1001"),
        ({"first_pause_s": -1.0}, "first_pause_s is from 0 to 60 seconds, not -1.0"),
        ({"first_pause_s": float("nan")}, "not nan"),
    ):
        with pytest.raises(ValueError, match=why):
            Reference(path=tmp_path, **wrong)  # type: ignore[arg-type]  # both kinds of value


def test_a_trajectory_too_short_for_its_cut_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "short", [{"x": 1}, {"x": 2}])

    with pytest.raises(BrokenReferenceError, match="has 2 steps, and steps 1 to 4"):
        Reference(path=path, unroll_len=3, unroll_split_begin=1)()


def test_an_unknown_compressor_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'none', 'zlib' or 'lz4', not 'rar'"):
        Reference(path=tmp_path / "x", compressor="rar")()
