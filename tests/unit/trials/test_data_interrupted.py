"""A signal handler that closes a loader in the middle of what its thread does with it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.unit.trials.test_data_device_prefetch import FakeStream, Made
from trials.data import AsyncDataLoader
from trials.data.errors import LoaderClosed
from trials.data.loader import Loaded
from trials.data.own_batches import OwnBatches
from trials.data.workers import prefetcher
from trials.data.workers.device_prefetch import DevicePrefetcher
from trials.data.workers.interruptible_lock import InterruptibleLock


def test_what_waits_for_others_is_done_once_its_thread_has_left_the_lock() -> None:
    lock, done = InterruptibleLock(), list[str]()
    with lock:
        with lock:
            lock.when_left(lambda: done.append("first"))
            lock.when_left(lambda: done.append("second"))
        assert done == []
    assert done == ["first", "second"]

    lock.when_left(lambda: done.append("at once"))
    assert done[2:] == ["at once"]


def test_what_another_thread_asks_for_is_done_by_that_one() -> None:
    lock, done = InterruptibleLock(), list[int]()
    with lock:
        other = threading.Thread(target=lambda: lock.when_left(lambda: done.append(threading.get_ident())))
        other.start()
        other.join()
    assert done == [other.ident]


def test_what_was_to_be_done_is_left_alone_by_a_thread_that_comes_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, done = InterruptibleLock(), list[int]()
    release = lock.release

    def use() -> None:
        with lock:
            pass

    def released_and_used_by_another() -> None:
        release()
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=use)
            other.start()
            other.join()

    monkeypatch.setattr(lock, "release", released_and_used_by_another)
    with lock:
        lock.when_left(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


def test_what_was_to_be_done_is_done_also_where_an_error_leaves_the_lock() -> None:
    lock, done = InterruptibleLock(), list[str]()

    def leave_by_an_error() -> None:
        with lock:
            lock.when_left(lambda: done.append("it"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave_by_an_error()
    assert done == ["it"]


class Numbers:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture
def closing() -> Iterator[AsyncDataLoader]:
    """A loader that a signal closes."""
    loader = AsyncDataLoader(Numbers(), 4, num_workers=1, worker_type="thread", collate_fn=list)
    before = signal.signal(signal.SIGUSR1, lambda *_: loader.close(1.0))
    yield loader
    signal.signal(signal.SIGUSR1, before)
    loader.close()


def test_a_loader_that_is_closed_while_it_gives_out_work_is_closed_and_says_so(
    closing: AsyncDataLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch = prefetcher.Prefetcher._dispatch

    def interrupted(self: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        dispatch(self)

    before = set(threading.enumerate())  # of other tests
    assert next(closing) == [0, 1, 2, 3]
    monkeypatch.setattr(prefetcher.Prefetcher, "_dispatch", interrupted)
    with pytest.raises(LoaderClosed):
        next(closing)
    assert set(threading.enumerate()) <= before


def test_a_loader_that_is_closed_just_before_it_waits_does_not_wait(
    closing: AsyncDataLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = threading.Condition.wait

    def interrupted(self: threading.Condition, timeout: float | None = None) -> bool:
        if isinstance(self, InterruptibleLock) and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        return wait(self, timeout)

    assert next(closing) == [0, 1, 2, 3]
    monkeypatch.setattr(InterruptibleLock, "wait", interrupted)
    monkeypatch.setattr(prefetcher.Pipeline, "next_ready", lambda _: None)  # it waits for ever
    with pytest.raises(LoaderClosed):
        next(closing)


def test_a_feed_is_stopped_at_each_line_of_what_its_thread_does_with_it() -> None:
    """By a signal handler, which runs between any two of them."""
    lines = each_line_of_next(0)
    assert lines > 3
    for line in range(1, lines + 1):
        each_line_of_next(line)


def each_line_of_next(stopped_at: int) -> int:
    """How many it has until the second batch; at the one given the feed is stopped."""
    feed = DevicePrefetcher(Made(1, 2, 3), FakeStream())
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code is DevicePrefetcher.next.__code__ and event == "line":
            lines += 1
            if lines == stopped_at:
                feed.stop()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        feed.next()
        feed.next()
    finally:
        sys.settrace(before)
    feed.stop()
    assert feed.next() is None
    return lines


@pytest.mark.parametrize("moment", ["begin", "next"])
@pytest.mark.parametrize("given", [None, Loaded([4, 5, 6, 7], 8)])
def test_a_loader_that_is_closed_in_the_middle_of_a_batch_says_so_and_stays_where_it_is(
    moment: str, given: Loaded | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its source found no more, that was taken for the end of the epoch: a state then left out the rest."""
    loader = AsyncDataLoader(Numbers(), 4, collate_fn=list)
    before = getattr(OwnBatches, moment)

    def interrupted(self: OwnBatches, *arguments: Any) -> Any:
        found = before(self, *arguments)
        loader.close()
        return found if moment == "begin" else given

    if moment == "next":
        next(loader)
    position = loader.state_dict()
    monkeypatch.setattr(OwnBatches, moment, interrupted)
    with pytest.raises(LoaderClosed):
        next(loader)
    assert loader.state_dict() == position
