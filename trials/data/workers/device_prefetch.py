"""Prefetch to a device: a thread copies batches on a CUDA stream of its own while the trial computes.

Rules that stay true, with a real stream and with a fake one:
1. A batch is handed to the trial only with the promise that what it does next waits for the copy.
2. The memory a copy reads from is let go only after the event that was recorded behind the copy.
3. No more than AHEAD batches are on the device before the trial asks; errors come in the place of their batch.
4. Before another batch is asked for, so many have been let go that it is lent as well, in memory that the device reads
   directly: beyond HELD, a loader copies it first, into memory from which a device reads many times more slowly.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from trials.data.core.chunk_size import HELD
from trials.data.core.in_order_pipeline import Plan
from trials.data.core.sample_layout import mapped
from trials.data.errors import closed_in_fork
from trials.data.workers.batch_assembly import Assembled

T = TypeVar("T")

AHEAD = 2  # batches on the device that the trial has not asked for


class Event(Protocol):
    def query(self) -> bool:
        """Whether everything before it is done."""
        ...

    def synchronize(self) -> None: ...


class Stream(Protocol):
    def copy(self, value: Any) -> tuple[Any, Event]:
        """Start to copy a batch to the device; the event comes after it."""
        ...

    def hand_over(self, value: Any, event: Event) -> None:
        """What the calling thread does with ``value`` from now on comes after the event."""
        ...


class Batches(Protocol):
    def next(self) -> tuple[Plan, Assembled] | None: ...

    def abandon(self) -> None: ...


class _Arrived(NamedTuple):
    plan: Plan
    assembled: Assembled
    event: Event | None


class DevicePrefetcher:
    """One iteration's batches, from ``batches`` to the device.

    Nothing of it holds a lock while it runs Python: a signal handler may stop it in the middle of whatever it does.
    """

    def __init__(self, batches: Batches, stream: Stream) -> None:
        self._batches = batches
        self._stream = stream
        self._ready: SimpleQueue[_Arrived | BaseException | None] = SimpleQueue()  # None: there is no more
        self._taken: SimpleQueue[None] = SimpleQueue()  # one for each that was taken of them; and one to stop
        self._ahead = 0  # not known to be taken; the thread's own
        self._copying: deque[tuple[Event, Any]] = deque()  # what is read from, until the event
        self._stopped = False
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name="data feed", daemon=True)
        self._thread.start()

    def next(self) -> tuple[Plan, Assembled] | None:
        if os.getpid() != self._owner:
            raise closed_in_fork(self._owner)  # where no thread would answer
        arrived = self._ready.get()
        if arrived is None:
            self._ready.put(None)
            return None
        self._taken.put(None)
        if isinstance(arrived, BaseException):
            raise arrived
        if arrived.event is not None:
            self._stream.hand_over(arrived.assembled.value, arrived.event)
        return arrived.plan, arrived.assembled

    def stop(self) -> None:
        """The rest is dropped; when it returns no copy reads from a batch any more."""
        if os.getpid() != self._owner:
            return  # a fork of the trial has no such thread
        self._stopped = True
        self._taken.put(None)
        self._batches.abandon()
        self._thread.join()
        with suppress(Empty):
            while True:
                self._ready.get_nowait()
        self._ready.put(None)

    def _run(self) -> None:
        try:
            while self._has_room(AHEAD):
                found = self._tried(self._fetched)
                if found is None:
                    break
                self._tried(partial(self._send, *found))
        finally:
            while self._copying:
                with suppress(Exception):  # of a device that has failed, and reads from nothing any more
                    self._let_go()
            self._ready.put(None)

    def _has_room(self, limit: int) -> bool:
        """Once fewer than so many have not been taken. False where the trial wants no more."""
        while not self._stopped and self._ahead >= limit:
            self._taken.get()
            self._ahead -= 1
        return not self._stopped

    def _put(self, arrived: _Arrived | BaseException) -> None:
        self._ahead += 1
        self._ready.put(arrived)

    def _tried(self, act: Callable[[], T]) -> T | None:
        """What ``act`` gives. An error is the trial's to see, and only then it is tried again, so that a batch which
        the device had no memory for is not left out. None where the trial wants no more."""
        while True:
            try:
                return act()
            except BaseException as error:  # noqa: BLE001  # whatever stands in a batch's place is the trial's to see
                self._put(error)
            if not self._has_room(1):
                return None

    def _fetched(self) -> tuple[Plan, Assembled] | None:
        while len(self._copying) >= HELD:
            self._let_go()
        return self._batches.next()

    def _send(self, plan: Plan, assembled: Assembled) -> None:
        event = None
        if not assembled.empty:
            while self._copying and self._copying[0][0].query():
                self._let_go()
            value, event = self._stream.copy(assembled.value)
            self._copying.append((event, assembled.value))
            assembled = replace(assembled, value=value)
        self._put(_Arrived(plan, assembled, event))

    def _let_go(self) -> None:
        event, _ = self._copying.popleft()
        event.synchronize()


class DirectToDevice:
    """Without a thread, for batches that the calling process makes: what makes them seeds the global generators, which
    the trial draws from meanwhile. A batch is made and copied when it is asked for."""

    def __init__(self, batches: Batches, stream: Stream) -> None:
        self._batches = batches
        self._stream = stream
        self._copying: tuple[Event, Any] | None = None  # what is read from, until the event
        self._found: tuple[Plan, Assembled] | None = None  # what could not be copied: it is tried again
        self._owner = os.getpid()

    def next(self) -> tuple[Plan, Assembled] | None:
        self._found = found = self._found or self._batches.next()
        if found is not None and not found[1].empty:
            self._let_go()
            plan, assembled = found
            value, event = self._stream.copy(assembled.value)
            self._copying = event, assembled.value
            self._stream.hand_over(value, event)
            found = plan, replace(assembled, value=value)
        self._found = None
        return found

    def stop(self) -> None:
        """When it returns no copy reads from a batch any more."""
        if os.getpid() != self._owner:
            return  # a fork of the trial has no CUDA
        self._found = None
        self._batches.abandon()
        self._let_go()

    def _let_go(self) -> None:
        if self._copying is not None:
            self._copying[0].synchronize()
            self._copying = None


def feed_device(device: Any) -> Any:
    """The CUDA device that batches are to be copied to; None where they stay in memory, as with ``"cpu"``.

    ``device`` is what torch takes: a name, a number, a ``torch.device``. ValueError for other kinds of device, and for
    CUDA where there is none.
    """
    if device is None:
        return None
    torch: Any = import_module("torch")
    try:
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device is 'cpu' or a CUDA device, not {device!r}: {error}") from error
    if found.type == "cpu":
        return None
    if found.type != "cuda":
        raise ValueError(f"device is 'cpu' or a CUDA device, not {device!r}; leave it out and move each batch yourself")
    if not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r} needs CUDA, and torch finds none here; "
            'device="cuda" if torch.cuda.is_available() else "cpu" works with and without'
        )
    return found


def batch_placement(device: Any, *, pin_memory: bool) -> Callable[[Any], Any] | None:
    """What puts a finished batch into pinned memory, or from there on ``device`` (see ``feed_device``); None where it
    stays as it is. The copy to the device goes on beside the trial, and its stream waits for it."""
    torch: Any = import_module("torch") if device is not None or pin_memory else None
    if torch is None or not torch.cuda.is_available():
        return None

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        # torch gives pinned memory back only behind the copies that read from it.
        pinned = leaf.pin_memory()
        return pinned if device is None else pinned.to(device, non_blocking=True)

    return lambda batch: mapped(batch, placed)


class CudaStream:
    """A side stream of one CUDA device."""

    def __init__(self, device: Any) -> None:
        # Untyped: torch annotates neither its streams nor its events.
        torch: Any = import_module("torch")
        self._torch = torch
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)

    def copy(self, value: Any) -> tuple[Any, Event]:
        with self._torch.cuda.stream(self._stream):
            copied = mapped(value, self._to_device)
            event = self._torch.cuda.Event()
            event.record(self._stream)
        found: Event = event
        return copied, found

    def hand_over(self, value: Any, event: Event) -> None:
        consumer = self._torch.cuda.current_stream(self._device)
        consumer.wait_event(event)
        # record_stream: torch's caching allocator must not reuse the memory while the consumer's stream still has
        # work queued that reads it.
        mapped(value, lambda leaf: leaf.record_stream(consumer) if self._is_tensor(leaf) else leaf)

    def _to_device(self, leaf: Any) -> Any:
        return leaf.to(self._device, non_blocking=True) if self._is_tensor(leaf) else leaf

    def _is_tensor(self, leaf: Any) -> bool:
        return isinstance(leaf, self._torch.Tensor)


class PinnedRing:
    """Memory of a ring that the device reads directly; nothing where the driver refuses."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._runtime: Any = import_module("torch").cuda.cudart()
        self.pinned = int(self._runtime.cudaHostRegister(address, size, 0)) == 0

    def close(self) -> None:
        if self.pinned:
            self._runtime.cudaHostUnregister(self._address)
            self.pinned = False
