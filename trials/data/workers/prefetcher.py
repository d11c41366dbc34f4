"""Prefetching with workers: one thread waits for answers, gives out chunks, and replaces workers that died."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trials.data.core.chunk_size import Asked, pipeline_size
from trials.data.core.in_order_pipeline import Death, Pipeline, Plan
from trials.data.core.loader_stats import Stats
from trials.data.core.sample_layout import rounded_up
from trials.data.core.worker_messages import Done, IterableBegin, Probe, Probed, Ring, Setup
from trials.data.errors import DataLoadingError, LoaderClosed, LoaderTimeout, WorkerDied, closed_in_fork
from trials.data.workers.batch_assembly import Assembled, BatchAssembly
from trials.data.workers.data_sources import AheadPlans
from trials.data.workers.device_prefetch import PinnedRing
from trials.data.workers.interruptible_lock import InterruptibleLock
from trials.data.workers.progress_board import ProgressBoard
from trials.data.workers.record_channel import Channel, close_all
from trials.data.workers.sample_maker import Recipe, number_of
from trials.data.workers.shared_memory import PAGE, SharedMemory
from trials.data.workers.worker_pool import ProcessPool, ThreadPool, WorkerPool
from trials.processes.forking import LoopThread

PROBE_SAMPLES = 3
PROBE_WAIT_S = 10.0
THREADS_GAIN = 1.8  # of two threads against one; below it processes are the better choice
ENCODED_ROOM = 4  # of a slot, in sizes of the batch that the first sample promises; pages never written cost nothing
SLOT_SIZE_MIN = 1 << 20  # of a slot for encoded batches: pages never written cost nothing
ENDING_S = 1.0  # for the workers of a fork server that was killed to be killed, too
DEATHS_LIMIT = 6  # of workers (and fork servers), with no chunk done in between


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetcherOptions:
    workers: int
    worker_type: str  # auto, process, thread
    batch_size: int  # the largest there is
    chunk_size: int | None = None
    prefetch_factor: int | None = None
    timeout_s: float = 0.0
    whole_batches: bool = False
    look: Sequence[Any] = ()  # items to try before anything is laid out
    on_demand: bool = False  # workers start with the first batch that has something for them to load


class Prefetcher:
    """Used by one consumer at a time."""

    def __init__(self, recipe: Recipe, options: PrefetcherOptions, stats: Stats) -> None:
        self._recipe = recipe
        self._options = options
        self._stats = stats
        self._changed = InterruptibleLock()
        self._thread: threading.Thread | None = None
        self._wake = -1
        self._poll = select.poll()
        self._channels: dict[int, Channel] = {}
        self._by_descriptor: dict[int, int] = {}
        self._pool: WorkerPool | None = None
        self._board: ProgressBoard | None = None
        self._pipeline: Pipeline | None = None
        self._assembly: BatchAssembly | None = None
        self._ring: SharedMemory | None = None
        self._pinned: PinnedRing | None = None
        self._slot_size = 0
        self._layout: Any = None
        self._broken: BaseException | None = None
        self._closed = False
        self._deaths = 0
        self._staffed = False  # workers were started
        self._owner = os.getpid()
        self._plans: Iterator[Plan] = iter(())
        self._begin: IterableBegin | None = None
        self._fresh: set[int] = set()  # workers that were not told yet where the iterable goes on

    # ── the consumer's side ─────────────────────────────────────────────────────────────────────
    def begin(self, epoch: int, plans: Iterator[Plan], begin: IterableBegin | None = None) -> None:
        """A new iteration; what is left of the one before is dropped."""
        self._require_own()
        if self._pipeline is None:
            self._start(epoch)
        with self._changed:
            self._require_open()
            assert self._pipeline is not None
            self._begin = begin
            self._fresh = set(self._channels)
            self._let_plans_go()
            self._plans = plans
            self._pipeline.begin(epoch=epoch, plans=plans)
            self._dispatch()

    def next(self) -> tuple[Plan, Assembled] | None:
        """The next batch; None at the end. Raises what stands in its place."""
        self._require_own()
        begun = time.perf_counter()
        with self._changed:
            self._await_batch()
            assert self._pipeline is not None
            batch = self._pipeline.take() if self._pipeline.next_ready() is not None else None
            self._dispatch()
        self._stats.wait_s += time.perf_counter() - begun
        if batch is None:
            return None
        self._require_open()  # what is closed has no memory any more
        assert self._assembly is not None
        if batch.pieces and batch.pieces[0].ended:
            self._abandon()
        assembled = self._assembly.assemble(batch, skip=self._recipe.skip_errors)
        self._stats.held_copies = self._assembly.copies
        return batch.plan, assembled

    def close(self, timeout_s: float) -> None:
        """All workers are gone when it returns: at the latest half a second after ``timeout_s``. Where a signal handler
        calls it in the middle of ``next``: when that has ended, with LoaderClosed."""
        if not self.is_own:
            self._closed = True
            return  # a fork of the trial; the workers are not its own, and the lock may have been held as it was forked
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._let_plans_go()
            if self._board is not None:
                self._board.closing()
            self._changed.notify_all()
            if self._thread is not None:
                os.eventfd_write(self._wake, 1)
        self._changed.when_left(partial(self._release, time.monotonic() + timeout_s))

    def poke(self) -> None:
        """A source that is asked in another thread has found something, or its end."""
        with self._changed:
            if self._pipeline is not None and not self._closed:
                self._dispatch()
                self._changed.notify_all()

    def abandon(self) -> None:
        """Nobody wants the rest of the iteration."""
        if self.is_own:
            self._changed.when_left(self._abandon)

    def _abandon(self) -> None:
        with self._changed:
            self._let_plans_go()
            if self._pipeline is not None and not self._closed:
                self._pipeline.abandon()
                self._changed.notify_all()

    def pin(self) -> None:
        """Have the ring's memory read by the device directly. It stays committed from now on."""
        if self._ring is not None and self._pinned is None:
            memory = self._ring.bytes()
            self._pinned = PinnedRing(memory.ctypes.data, self._ring.size)

    @property
    def is_own(self) -> bool:
        """Whether this process is the one that it was made in: a fork has neither its thread nor its workers."""
        return os.getpid() == self._owner

    @property
    def pool(self) -> WorkerPool | None:
        return self._pool

    @property
    def ring(self) -> SharedMemory | None:
        return self._ring

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────
    def _await_batch(self) -> None:
        timeout = self._options.timeout_s or None
        deadline = None if timeout is None else time.monotonic() + timeout
        pipeline = self._pipeline
        assert pipeline is not None
        while True:
            self._require_open()
            self._dispatch()
            if pipeline.next_ready() is not None or pipeline.ended():
                return
            if self._broken is not None:
                raise self._broken
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise self._timed_out()
            self._changed.wait(left)

    def _timed_out(self) -> LoaderTimeout:
        assert self._pipeline is not None
        assert self._board is not None
        workers = self._pipeline.workers_of_next()
        worker = workers[0] if workers else None
        index = None if worker is None else self._board.index_of(worker)
        stack = "" if worker is None or self._pool is None else self._pool.stack_of(worker)
        items = () if worker is None or index is not None else self._items_of(worker)
        return LoaderTimeout(timeout_s=self._options.timeout_s, index=index, worker=worker, stack=stack, items=items)

    def _items_of(self, worker: int) -> tuple[Any, ...]:
        """What it has in work, where it does not say at which sample it is: those that it loads by one call."""
        assert self._pipeline is not None
        assert self._board is not None
        tasks, first = self._pipeline.outstanding(worker), self._board.first_of(worker)
        parts = tasks[0].parts if tasks else ()
        said = [part for part in parts if number_of(part.items[0]) == first] or parts
        return tuple(item for part in said for item in part.items)

    def _require_open(self) -> None:
        if self._closed:
            raise LoaderClosed

    def _require_own(self) -> None:
        if not self.is_own:
            raise closed_in_fork(self._owner)

    # ── starting ────────────────────────────────────────────────────────────────────────────────
    def _start(self, epoch: int) -> None:
        """The pool, the ring and the loop."""
        workers = 1 if self._recipe.load is None else self._options.workers
        self._board = ProgressBoard.create(workers)
        probed = None
        if self._options.worker_type == "thread":
            self._pool = ThreadPool(self._recipe)
        else:
            self._pool = ProcessPool(self._recipe)
        try:
            if not self._options.on_demand:
                self._spawn_all(workers)
            if self._options.look:
                few = PROBE_SAMPLES if self._recipe.together is None else len(self._options.look)
                probed = self._probe(epoch, self._options.look[:few])
            if probed is not None and self._options.worker_type == "auto" and probed.threads_gain >= THREADS_GAIN:
                self._change_to_threads(workers)
            self._lay_out(probed)
        except BaseException as error:
            if self._closed and isinstance(error, OSError):  # by another thread, with all descriptors
                raise LoaderClosed from error
            self.close(0.0)
            raise
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll.register(self._wake, select.POLLIN)
        self._thread = LoopThread(self._loop, self._changed)
        self._thread.start()

    def _spawn_all(self, workers: int) -> None:
        assert self._pool is not None
        self._staffed = True
        self._pool.start()
        if self._pool.fileno() >= 0:
            self._poll.register(self._pool.fileno(), select.POLLIN)
        for worker in range(workers):
            self._spawn(worker)

    def _spawn(self, worker: int) -> None:
        assert self._pool is not None
        assert self._board is not None
        self._board.forget(worker)
        channel = self._pool.spawn(worker, self._options.workers)
        setup = Setup(worker, self._options.workers, self._layout, self._slot_size)
        rings = () if self._ring is None else (self._ring.descriptor,)
        channel.send(setup, (self._board.descriptor, *rings))
        self._channels[worker] = channel
        self._by_descriptor[channel.fileno()] = worker
        self._fresh.add(worker)
        self._poll.register(channel.fileno(), select.POLLIN)
        if self._pipeline is not None:
            self._pipeline.worker_started(worker)

    def _probe(self, epoch: int, items: Sequence[Any]) -> Probed | None:
        """What the first worker found; None where it could not, and then nothing is taken for granted."""
        channel = self._channels[0]
        compare = self._options.worker_type == "auto"
        channel.send(Probe(epoch, items, compare))
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        wait_s = min(self._options.timeout_s or PROBE_WAIT_S, PROBE_WAIT_S)
        if not poll.poll(wait_s * 1000):
            return None
        received = channel.receive()
        return received.value if received is not None else None

    def _change_to_threads(self, workers: int) -> None:
        assert self._pool is not None
        self._hang_up()
        self._poll.unregister(self._pool.fileno())
        self._pool.stop(time.monotonic() + PROBE_WAIT_S)
        self._pool = ThreadPool(self._recipe)
        self._spawn_all(workers)

    def _staff(self) -> None:
        """The first workers, when there is something for them to do. By the loop, which waits for what they say."""
        if threading.current_thread() is self._thread:
            self._spawn_all(self._options.workers)
        else:
            os.eventfd_write(self._wake, 1)

    def _lay_out(self, probed: Probed | None) -> None:
        """The size of everything, from what the first samples were like."""
        layout = None if probed is None or self._options.whole_batches else probed.layout
        rows = self._options.batch_size
        if layout is not None:
            slot_size = layout.offsets(rows)[1]
        else:
            slot_size = max(SLOT_SIZE_MIN, ENCODED_ROOM * rows * (probed.sample_size if probed else 0))
        slot_size = rounded_up(max(slot_size, 1), PAGE)
        options = self._options
        asked = Asked(
            workers=options.workers,
            batch_size=rows,
            # An iterable is read by one worker, in order: batch by batch, so that each has its position.
            chunk_size=rows if self._recipe.load is None else options.chunk_size,
            prefetch_factor=options.prefetch_factor,
        )
        sample_s = probed.sample_s if probed is not None else 0.0
        # What is loaded together is a whole batch, so that a batch has the same bytes whoever makes it.
        parts_fit = layout is not None and self._recipe.together is None
        size = pipeline_size(asked, sample_s=sample_s, slot_size=slot_size, rows_fit=parts_fit)
        ring = SharedMemory.create(size.slots * slot_size, name="trials-data-ring")
        self._ring, self._slot_size, self._layout = ring, slot_size, layout
        self._assembly = BatchAssembly(ring, slot_size, layout, self._recipe.collate)
        self._pipeline = Pipeline(size)
        for worker, channel in self._channels.items():
            channel.send(Ring(layout, slot_size), (ring.descriptor,))
            self._pipeline.worker_started(worker)

    # ── the loop ────────────────────────────────────────────────────────────────────────────────
    def _loop(self) -> None:
        try:
            while not self._closed:
                ready = [descriptor for descriptor, _ in self._poll.poll()]
                with self._changed:
                    if self._closed:
                        break
                    self._handle(ready)
                    self._dispatch()
                    assert self._pipeline is not None
                    if self._pipeline.next_ready() is not None or self._pipeline.ended():
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  # the consumer must hear of it, or it would wait for ever
            self._broken = error
        with self._changed:
            self._changed.notify_all()

    def _handle(self, ready: Sequence[int]) -> None:
        assert self._pool is not None
        if self._wake in ready:
            os.eventfd_read(self._wake)
        for descriptor in ready:
            worker = self._by_descriptor.get(descriptor)
            if worker is not None:
                self._answer(worker)
        if self._pool.fileno() in ready:
            exits = self._pool.exits()
            if exits is None:
                self._new_pool()
                return
            for exited in exits:
                self._drain(exited.worker)
                self._lost(exited.worker, Death(exited.signal, exited.exit_code))

    def _answer(self, worker: int) -> bool:
        """One record of a worker. False when there are no more, for ever."""
        assert self._pool is not None
        channel = self._channels[worker]
        received = channel.receive()
        if received is None:
            self._drop(worker)
            if self._pool.fileno() < 0:
                self._lost(worker, Death(None, None))
            return False
        done = received.value
        if isinstance(done, Done):
            memory = None
            if received.descriptors:
                outside = SharedMemory.attach(received.descriptors[0])
                memory = outside.bytes()
                outside.close()
            self._completed(worker, done, memory)
        else:
            close_all(received.descriptors)  # a probe that came too late
        return True

    def _completed(self, worker: int, done: Done, memory: Any) -> None:
        assert self._pipeline is not None
        self._deaths = 0
        self._stats.decode_s += done.decode_s
        self._stats.write_s += done.copy_s
        if not self._pipeline.done(worker, done, memory):
            return  # of an iteration that was dropped: the source goes on from where this one begins
        if self._begin is not None and done.pieces[0].source_state is not None:
            self._begin = self._begin._replace(state=done.pieces[0].source_state, skip=0)
        elif self._begin is not None:
            self._begin = self._begin._replace(skip=self._begin.skip + done.pieces[0].covered)

    def _drain(self, worker: int, deadline: float = 0.0) -> None:
        """What it had said before it ended; later not its end, which a process that it forked may hold."""
        while (channel := self._channels.get(worker)) is not None:
            if channel.is_readable(deadline):
                self._answer(worker)
            else:
                self._drop(worker)

    def _drop(self, worker: int) -> None:
        channel = self._channels.pop(worker)
        self._poll.unregister(channel.fileno())
        del self._by_descriptor[channel.fileno()]
        channel.close()

    def _lost(self, worker: int, death: Death) -> None:
        assert self._pipeline is not None
        assert self._board is not None
        self._stats.worker_deaths += 1
        self._deaths += 1
        index = self._board.index_of(worker)
        items = self._items_of(worker) if index is None else (index,)
        self._pipeline.worker_died(worker, Death(death.signal, death.exit_code, index))
        if self._deaths > DEATHS_LIMIT:
            self._broken = WorkerDied(
                signal_number=death.signal,
                exit_code=death.exit_code,
                indices=items,
                tries=self._deaths,
            )
            self._changed.notify_all()
            return
        self._spawn(worker)

    def _new_pool(self) -> None:
        """The fork server died, and all workers with it."""
        assert self._pool is not None
        assert self._pipeline is not None
        workers = sorted(self._channels)
        self._poll.unregister(self._pool.fileno())
        deadline = time.monotonic() + ENDING_S
        for worker in workers:
            self._drain(worker, deadline)
        count = 1 if self._recipe.load is None else self._options.workers
        for worker in range(count):
            self._pipeline.worker_died(worker, None)
        self._pool.stop(time.monotonic())
        self._deaths += 1
        if self._deaths > DEATHS_LIMIT:
            self._broken = DataLoadingError("the process that starts the workers died again and again")
            self._changed.notify_all()
            return
        self._pool = ProcessPool(self._recipe)
        self._spawn_all(count)

    def _dispatch(self) -> None:
        assert self._pipeline is not None
        assert self._assembly is not None
        for slot in self._assembly.freed():
            self._pipeline.freed(slot)
        if isinstance(self._plans, AheadPlans):
            self._plans.allow(self._pipeline.credit)
        if not self._staffed and self._pipeline.has_work():
            self._staff()
        for worker, task in self._pipeline.orders():
            channel = self._channels.get(worker)
            if channel is None:
                continue  # its death is on the way
            if worker in self._fresh and self._begin is not None:
                channel.send(self._begin)
            self._fresh.discard(worker)
            channel.send(task)

    def _let_plans_go(self) -> None:
        if isinstance(self._plans, AheadPlans):
            self._plans.close()
        self._plans = iter(())

    # ── ending ──────────────────────────────────────────────────────────────────────────────────
    def _hang_up(self) -> None:
        for worker, channel in list(self._channels.items()):
            self._poll.unregister(channel.fileno())
            channel.hang_up()
            channel.close()
            del self._channels[worker]
        self._by_descriptor.clear()

    def _release(self, deadline: float) -> None:
        if self._thread is not None:
            if threading.current_thread() is not self._thread:
                self._thread.join()
            os.close(self._wake)
        self._hang_up()
        if self._pool is not None:
            self._pool.stop(deadline)
        if self._pinned is not None:
            self._pinned.close()
        for memory in (self._board, self._ring):
            if memory is not None:
                memory.close()
