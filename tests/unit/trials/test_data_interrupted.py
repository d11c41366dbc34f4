"""A signal handler that closes a loader in the middle of what its thread does with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trials.data import AsyncDataLoader
from trials.data.errors import LoaderClosed
from trials.data.workers import prefetcher
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
