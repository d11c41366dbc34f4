"""Loaders whose batches go to a device that is none: its copies are done at once."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from typing import Any

import pytest
import torch

from tests.data_samples import ShuffledStream, Stream
from tests.waiting import wait_until
from trials.data import AsyncDataLoader, async_data_loader, own_batches
from trials.data.workers.device_prefetch import AHEAD
from trials.data.workers.prefetcher import Prefetcher


class Done:
    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


class Copies:
    def copy(self, value: Any) -> tuple[Any, Done]:
        return value + 100, Done()

    def hand_over(self, value: Any, event: Done) -> None: ...


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """``device="cuda"`` is this one, whose copies are 100 more."""
    monkeypatch.setattr(async_data_loader, "feed_device", lambda device: device)
    monkeypatch.setattr(own_batches, "CudaStream", lambda _: Copies())
    monkeypatch.setattr(Prefetcher, "pin", lambda _: None)


def feed_of(loader: AsyncDataLoader) -> Any:
    return loader._source._to_device  # type: ignore[attr-defined]  # it has batches of its own


@pytest.mark.usefixtures("a_device")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_state_of_an_iterable_is_that_of_the_batch_the_trial_has(workers: int) -> None:
    for taken in (1, 3, 6):
        with AsyncDataLoader(Stream(30), 4, num_workers=workers, device="cuda") as loader:
            iterator = iter(loader)
            first = list(itertools.islice(iterator, taken))
            feed = feed_of(loader)
            wait_until(lambda feed=feed: workers == 0 or not feed._thread.is_alive() or feed._ready.qsize() == AHEAD)  # type: ignore[misc]
            first.append(next(iterator))
            state = loader.state_dict()
        with AsyncDataLoader(Stream(30), 4) as loader:
            loader.load_state_dict(state)
            rest = [number for batch in loader for number in batch.tolist()]

        assert [number - 100 for batch in first for number in batch.tolist()] + rest == list(range(30)), (
            f"after {taken}"
        )


@pytest.mark.usefixtures("a_device")
def test_what_the_calling_process_makes_is_made_when_it_is_asked_for_and_by_the_thread_that_asks() -> None:
    def named(numbers: list[Any]) -> torch.Tensor:
        makers.append(threading.current_thread())
        return torch.tensor([number for number, _, _ in numbers])

    makers: list[threading.Thread] = []
    random.seed(1)
    drawn = [random.random() for _ in range(8)]
    random.seed(1)
    with AsyncDataLoader(ShuffledStream(30), 4, collate_fn=named, device="cuda") as loader:
        found = [random.random() for _ in loader]
        assert makers == [threading.current_thread()] * 8

    assert found == drawn, "the trial draws what it would draw without the loader"


def left_behind() -> None:
    """A loader that is not closed, while its feed waits for room."""
    loader = AsyncDataLoader(list(range(40)), 4, num_workers=1, device="cuda")
    next(iter(loader))
    ready = feed_of(loader)._ready
    wait_until(lambda: ready.qsize() == AHEAD)
    del loader
    gc.collect()  # a loader and its iterator hold each other


@pytest.mark.usefixtures("a_device")
@pytest.mark.parametrize("by_another_thread", [False, True])
def test_the_feed_of_a_loader_that_nobody_holds_any_more_ends(by_another_thread: bool) -> None:
    before = set(threading.enumerate())
    if by_another_thread:
        thread = threading.Thread(target=left_behind)
        thread.start()
        thread.join()
    else:
        left_behind()

    wait_until(lambda: not set(threading.enumerate()) - before)
