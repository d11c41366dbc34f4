"""Loaders, as somebody calls them who has misread the page: a clear error, and never a wait without an end."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trials.data import AsyncDataLoader, SampleError, SharedDataLoader, SharingError, SourceError, StateError, shared
from trials.data.workers.sample_maker import Recipe
from trials.data.workers.worker_pool import ProcessPool


class Numbers:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Lengthless:
    def __getitem__(self, index: int) -> int:
        return index


class Endless:
    """A sampler that says how many items it has, and goes on and on."""

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(10))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"batch_size": "64"}, TypeError, "batch_size is a whole number, not '64'"),
        ({"batch_size": 2.5}, TypeError, "batch_size is a whole number"),
        ({"batch_size": math.nan}, TypeError, "batch_size is a whole number"),
        ({"batch_size": True}, TypeError, "batch_size is a whole number"),
        ({"batch_size": -3}, ValueError, "batch_size is at least 1, not -3"),
        ({"batch_size": 10**12}, ValueError, "batch_size is at most"),
        ({"seed": "1"}, TypeError, "seed is a whole number"),
        ({"seed": 1.5}, TypeError, "seed is a whole number"),
        ({"seed": 1 << 70}, ValueError, "seed is at most"),
    ],
)
@pytest.mark.parametrize("loader", [AsyncDataLoader, SharedDataLoader])
def test_a_wrong_number_is_named(loader: Any, arguments: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        loader(Numbers(), **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"timeout": math.nan, "num_workers": 1}, ValueError, "timeout, in seconds, is a number, not NaN"),
        ({"timeout": math.inf, "num_workers": 1}, ValueError, "timeout is at most"),
        ({"timeout": "5"}, TypeError, "timeout, in seconds, is a number"),
        ({"chunk_size": 2.0}, TypeError, "chunk_size is a whole number"),
        ({"prefetch_factor": math.nan, "num_workers": 1}, TypeError, "prefetch_factor is a whole number"),
    ],
)
def test_a_wrong_limit_is_named(arguments: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        AsyncDataLoader(Numbers(), **arguments)


def test_numbers_of_numpy_mean_the_same_as_pythons_and_their_state_can_be_loaded() -> None:
    loader = AsyncDataLoader(Numbers(), np.int64(3), shuffle=True, seed=np.int64(7), collate_fn=list)
    own = AsyncDataLoader(Numbers(), 3, shuffle=True, seed=7, collate_fn=list)
    assert next(loader) == next(own)
    state = loader.state_dict()
    assert state == own.state_dict()
    own.load_state_dict(state)
    assert next(own) == next(loader)


@pytest.mark.parametrize("state", [None, [], "state", 5])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(StateError, match=r"a loader's state is what state_dict\(\) gave, a dict, not a "):
        AsyncDataLoader(Numbers()).load_state_dict(state)


@pytest.mark.parametrize("epoch", [1.5, math.nan, "1", None])
def test_an_epoch_is_a_whole_number(epoch: Any) -> None:
    with pytest.raises(TypeError, match="an epoch is a whole number"):
        AsyncDataLoader(Numbers()).set_epoch(epoch)


@pytest.mark.parametrize("timeout", [math.nan, "5", None, -1])
def test_a_loader_whose_close_is_refused_is_not_closed(timeout: Any) -> None:
    loader = AsyncDataLoader(Numbers(), 5, collate_fn=list)
    assert next(loader) == [0, 1, 2, 3, 4]
    with pytest.raises((TypeError, ValueError), match="timeout"):
        loader.close(timeout)
    assert next(loader) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("given", [7, "ab", b"ab"])
def test_a_batch_of_a_batch_sampler_is_a_list_of_indices(given: Any) -> None:
    with AsyncDataLoader(Numbers(), batch_sampler=[[1], given], collate_fn=list) as loader:
        assert next(loader) == [1]
        with pytest.raises(TypeError, match=f"gave {given!r} as batch 1: each of its batches is a list"):
            next(loader)


# ── sources and samplers ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": 1, "label": 2}, "asked for 2 samples and gave a dict: give a list of samples"),
        ("ab", "gave a str"),
        (7, "gave a int"),
    ],
)
def test_a_source_gives_a_list_of_samples(given: Any, said: str) -> None:
    with AsyncDataLoader(lambda batch_size: given, 2) as loader, pytest.raises(SourceError, match=said):
        next(loader)


def test_a_source_that_is_a_generator_without_an_end_is_not_waited_for() -> None:
    def source(batch_size: int) -> Iterator[int]:
        while True:
            yield batch_size

    with AsyncDataLoader(source, 2) as loader, pytest.raises(SourceError, match="asked for 2 samples and gave 3"):
        next(loader)


def test_a_source_may_be_a_generator_of_as_many_as_it_is_asked_for() -> None:
    with AsyncDataLoader(lambda batch_size: iter(range(batch_size)), 3, collate_fn=list) as loader:
        assert [next(loader), next(loader)] == [[0, 1, 2], [0, 1, 2]]


def test_a_source_that_raises_stop_iteration_has_lost_what_it_had_taken() -> None:
    """As by a ``next`` in the midst of a batch: that is no end of an epoch."""
    left = iter(range(5))
    with AsyncDataLoader(lambda batch_size: [next(left) for _ in range(batch_size)], 2, collate_fn=list) as loader:
        assert [next(loader), next(loader)] == [[0, 1], [2, 3]]
        with pytest.raises(SourceError, match="asked for 2 samples and raised StopIteration: give those that are left"):
            next(loader)


@pytest.mark.parametrize("bad", [4, 5, 7])
def test_a_dataset_that_raises_stop_iteration_ends_no_batch(bad: int) -> None:
    class Stopping(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == bad:
                raise StopIteration
            return super().__getitem__(index)

    with AsyncDataLoader(Stopping(), 4, collate_fn=list) as loader:
        assert next(loader) == [0, 1, 2, 3]
        with pytest.raises(SampleError, match=f"sample {bad} could not be loaded .*StopIteration"):
            next(loader)


def test_a_sampler_that_has_a_length_and_no_end_is_told_so() -> None:
    with (
        AsyncDataLoader(Numbers(), 2, sampler=Endless()) as loader,
        pytest.raises(ValueError, match="the Endless says that it has 10 items, and gave more than 1048576"),
    ):
        next(loader)


# ── sharing ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"dataset": Numbers()}, TypeError, "takes the name of a dataset, as 'package.module:function', not a Numbers"),
        ({"dataset": "..a:b"}, SharingError, "cannot be imported"),
        ({"arguments": {"length": object()}}, TypeError, "arguments: 'length' cannot be told to the producer"),
        ({"arguments": [1]}, TypeError, r"arguments is a mapping, not \[1\], a list"),
        ({"sharing": ["workers"]}, TypeError, "sharing is a mapping, not"),
        ({"sharing": {"block_size": "x"}}, TypeError, "sharing: block_size is a whole number"),
        ({"sharing": {"memory_bytes": "2GB"}}, TypeError, "sharing: memory_bytes is a whole number, not '2GB'"),
        ({"sharing": {"workers": math.nan}}, TypeError, "sharing: workers is a whole number"),
        ({"sharing": {"group_seed": 1.5}}, TypeError, "sharing: group_seed is a whole number"),
        ({"timeout": math.nan}, ValueError, "timeout, in seconds, is a number, not NaN"),
        ({"num_workers": 1.5}, TypeError, "num_workers is a whole number"),
    ],
)
def test_a_wrong_argument_of_sharing_is_named(arguments: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        shared(**{"dataset": "tests.shared_datasets:Numbers", **arguments})


def test_a_dataset_without_a_length_cannot_be_shared() -> None:
    with pytest.raises(SharingError, match="a Lengthless cannot be shared: it needs __len__"):
        SharedDataLoader(Lengthless())


@pytest.mark.parametrize("dataset", [5, object(), 2.5])
def test_what_is_no_dataset_is_refused_when_the_loader_is_made(dataset: Any) -> None:
    with pytest.raises(ValueError, match="is no dataset: it has no __getitem__ and no __iter__"):
        AsyncDataLoader(dataset)


def test_who_gives_what_cannot_be_pickled_is_told_why_no_process_was_forked() -> None:
    """Also where that has passed before the workers are wanted."""
    ended = threading.Event()
    working = threading.Thread(target=ended.wait)
    working.start()
    pool = ProcessPool(Recipe(load=lambda index: index, collate=list))
    ended.set()
    working.join()

    with pytest.raises(TypeError, match=r"This process cannot be forked \(thread '.*' runs\), so they are pickled"):
        pool.start()
