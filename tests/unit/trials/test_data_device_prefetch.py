"""The way of batches to a device, with a stream whose copies end when the test says so."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import pytest
import torch

from tests.waiting import wait_until
from trials.data import AsyncDataLoader
from trials.data.core.chunk_size import HELD
from trials.data.core.in_order_pipeline import Plan
from trials.data.errors import LoaderClosed
from trials.data.workers.batch_assembly import Assembled
from trials.data.workers.device_prefetch import AHEAD, DevicePrefetcher, DirectToDevice, feed_device


@pytest.mark.parametrize("device", [None, "cpu", "cpu:0", torch.device("cpu")], ids=str)
@pytest.mark.parametrize("pin_memory", [True, False])
def test_on_the_processor_batches_stay_in_memory(device: Any, pin_memory: bool) -> None:
    assert feed_device(device) is None
    with AsyncDataLoader([1, 2, 3], 3, device=device, pin_memory=pin_memory) as loader:
        assert [batch.tolist() for batch in loader] == [[1, 2, 3]]


def test_devices_that_batches_cannot_be_copied_to_are_refused_when_the_loader_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device, why in (
        ("cuda", 'device="cuda" if torch.cuda.is_available\\(\\) else "cpu"'),
        (0, "needs CUDA, and torch finds none"),
        ("meta", "device is 'cpu' or a CUDA device, not 'meta'"),
        ("gpu", "device is 'cpu' or a CUDA device, not 'gpu'"),
        (object(), "device is 'cpu' or a CUDA device, not <object"),
    ):
        with pytest.raises(ValueError, match=why):
            AsyncDataLoader([1, 2, 3], 3, device=device)


def test_a_cuda_device_is_taken_by_name_number_or_as_torch_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert feed_device("cuda") == torch.device("cuda")
    assert feed_device("cuda:1") == feed_device(1) == feed_device(torch.device("cuda", 1)) == torch.device("cuda:1")


class FakeEvent:
    def __init__(self) -> None:
        self.done = threading.Event()

    def query(self) -> bool:
        return self.done.is_set()

    def synchronize(self) -> None:
        assert self.done.wait(30)


class FakeStream:
    def __init__(self, *, ends_at_once: bool = True) -> None:
        self.events: list[FakeEvent] = []
        self.handed: list[FakeEvent] = []
        self.ends_at_once = ends_at_once

    def copy(self, value: Any) -> tuple[Any, FakeEvent]:
        event = FakeEvent()
        if self.ends_at_once:
            event.done.set()
        self.events.append(event)
        return value + 100, event

    def hand_over(self, value: Any, event: FakeEvent) -> None:  # type: ignore[override]  # the events are its own
        self.handed.append(event)

    def finish(self) -> None:
        self.ends_at_once = True
        for event in self.events:
            event.done.set()


class Made:
    """Batches, and errors, in the order given; it remembers which batches are still held."""

    def __init__(self, *values: int | BaseException) -> None:
        self.values = deque(values)
        self.alive: list[weakref.ref[Any]] = []
        self.asked = 0

    def next(self) -> tuple[Plan, Assembled] | None:
        if not self.values:
            return None
        value = self.values.popleft()
        if isinstance(value, BaseException):
            raise value
        self.asked += 1
        batch = torch.tensor([value])
        self.alive.append(weakref.ref(batch))
        return Plan(value, value + 1, [value]), Assembled(value=batch, samples=1)

    def abandon(self) -> None:
        self.values.clear()


def rest(feed: DevicePrefetcher) -> list[int]:
    found = []
    while (item := feed.next()) is not None:
        found.append(int(item[1].value[0]))
    feed.stop()
    return found


def test_batches_arrive_on_the_device_in_order_each_behind_its_event() -> None:
    stream = FakeStream()

    assert rest(DevicePrefetcher(Made(1, 2, 3), stream)) == [101, 102, 103]
    assert stream.handed == stream.events


def test_no_more_than_a_few_batches_are_copied_ahead() -> None:
    made = Made(*range(10))
    feed = DevicePrefetcher(made, FakeStream())

    wait_until(lambda: feed._ready.qsize() == AHEAD)
    assert made.asked == AHEAD
    feed.next()
    wait_until(lambda: made.asked == AHEAD + 1)
    feed.stop()


def test_memory_is_held_until_the_copy_out_of_it_is_done() -> None:
    made, stream = Made(1), FakeStream(ends_at_once=False)
    feed = DevicePrefetcher(made, stream)

    feed.next()
    assert made.alive[0]() is not None
    stream.finish()
    wait_until(lambda: made.alive[0]() is None)

    feed.stop()


def test_a_batch_is_asked_for_when_it_can_be_lent_as_well_and_need_not_be_copied() -> None:
    held_when_asked: list[int] = []

    class Asked(Made):
        def next(self) -> tuple[Plan, Assembled] | None:
            held_when_asked.append(sum(batch() is not None for batch in self.alive))
            return super().next()

    class SlowEvent(FakeEvent):
        def synchronize(self) -> None:  # the copy ends when somebody waits for it, and not before
            self.done.set()

    class SlowStream(FakeStream):
        def copy(self, value: Any) -> tuple[Any, FakeEvent]:
            self.events.append(SlowEvent())
            return value + 100, self.events[-1]

    assert rest(DevicePrefetcher(Asked(*range(8)), SlowStream())) == list(range(100, 108))
    assert max(held_when_asked) == HELD - 1


def test_an_error_comes_in_the_place_of_its_batch_and_the_next_one_after_it() -> None:
    feed = DevicePrefetcher(Made(1, LookupError("damaged"), 2), FakeStream())

    first = feed.next()
    assert first is not None
    assert int(first[1].value[0]) == 101
    with pytest.raises(LookupError, match="damaged"):
        feed.next()

    assert rest(feed) == [102]


@pytest.mark.parametrize("way", [DevicePrefetcher, DirectToDevice])
def test_a_batch_that_the_device_has_no_memory_for_is_told_of_and_not_left_out(way: Any) -> None:
    class FullOnce(FakeStream):
        def copy(self, value: Any) -> tuple[Any, FakeEvent]:
            if int(value[0]) == 2 and "full" not in vars(self):
                self.full = True
                raise MemoryError("the device is full")
            return super().copy(value)

    feed = way(Made(1, 2, 3), FullOnce())
    first = feed.next()
    assert first is not None
    assert int(first[1].value[0]) == 101
    with pytest.raises(MemoryError, match="the device is full"):
        feed.next()

    assert rest(feed) == [102, 103]


def test_a_device_that_fails_is_told_of_and_is_no_end_of_the_epoch() -> None:
    class Broken(FakeEvent):
        def query(self) -> bool:
            raise RuntimeError("device-side assert")

        def synchronize(self) -> None:
            raise RuntimeError("device-side assert")

    class Failing(FakeStream):
        def copy(self, value: Any) -> tuple[Any, FakeEvent]:
            return value + 100, Broken()

    feed = DevicePrefetcher(Made(1, 2, 3), Failing())
    assert feed.next() is not None
    with pytest.raises(RuntimeError, match="device-side assert"):
        rest(feed)
    feed.stop()


def test_an_exit_in_the_place_of_a_batch_is_no_end_of_the_epoch() -> None:
    with pytest.raises(SystemExit):
        rest(DevicePrefetcher(Made(1, SystemExit(3), 2), FakeStream()))


def test_a_fork_of_the_trial_does_not_wait_for_a_feed_that_it_does_not_have() -> None:
    feed = DevicePrefetcher(Made(), FakeStream())
    feed._owner += 1  # as it looks in a fork
    with pytest.raises(LoaderClosed, match="this process was forked"):
        feed.next()
    feed._owner -= 1
    feed.stop()


def test_a_feed_that_is_stopped_waits_for_its_copies_and_drops_the_rest() -> None:
    made, stream = Made(*range(10)), FakeStream(ends_at_once=False)
    feed = DevicePrefetcher(made, stream)
    wait_until(lambda: len(stream.events) == AHEAD)
    stopping = threading.Thread(target=feed.stop)
    stopping.start()
    wait_until(lambda: feed._stopped)
    assert stopping.is_alive(), "copies still read from batches"

    stream.finish()
    stopping.join(30)

    assert not stopping.is_alive()
    assert feed.next() is None


def test_what_has_no_samples_needs_no_copy() -> None:
    class Empty(Made):
        def next(self) -> tuple[Plan, Assembled] | None:
            return super().next() and (Plan(0, 1, [0]), Assembled(value=None, empty=True))

    stream = FakeStream()
    feed = DevicePrefetcher(Empty(1), stream)

    found = feed.next()
    assert found is not None
    assert found[1].empty
    assert not stream.events
    feed.stop()


def test_a_batch_that_is_copied_directly_is_held_until_its_copy_is_done() -> None:
    made, stream = Made(1, 2), FakeStream()
    feed = DirectToDevice(made, stream)

    found = feed.next()
    assert found is not None
    assert int(found[1].value[0]) == 101
    assert stream.handed == stream.events
    assert made.alive[0]() is not None
    feed.stop()

    assert made.alive[0]() is None
    assert feed.next() is None
