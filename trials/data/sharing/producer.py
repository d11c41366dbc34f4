"""The producer of a node: one process that has each sample decoded once for all trials that need it.

One thread, one loop over sockets. What is decoded next, and who may go on, ``window.py`` decides.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trials.data.core.sample_layout import Layout
from trials.data.errors import SharingError
from trials.data.sharing.decoder import CHUNK_MAX, COLUMNS, TIMES_BYTES, Process, Tools, read_answer, start
from trials.data.sharing.group_order import GroupOrder, GroupSamples
from trials.data.sharing.producer_protocol import (
    MESSAGE_BYTES,
    VERSION,
    Answered,
    Ask,
    Geometry,
    Hello,
    Refused,
    Welcome,
    decode,
    decode_ask,
    encode,
    encode_answer,
    send_with_descriptor,
)
from trials.data.sharing.ring import EMPTY, Ring, cache_key, fence, make_ring, page_slots, seal_ring, slot_bytes
from trials.data.sharing.window import Answer, Fill, SharedWindows
from trials.wire.peers import accepted, is_own_user
from trials.wire.plain import ProtocolError

MEMBERS_MAX = 64  # a further trial is refused and decodes for itself
WINDOWS_MAX = 4
WINDOW_BLOCKS = 4  # what a window holds, where the memory allows
WINDOW_SAMPLES = 512  # of a window, where the memory allows
CHUNKS_PER_WORKER = 2  # one that it works on, and the next
CHUNK_S = 0.02  # what a chunk should take of a processor
CHUNK_LATENCY_S = 0.1  # and at most from its order to its answer, where the processors are busy or files are slow
FILL_TIMEOUT_S = 60.0  # a worker that needs longer for a chunk is killed, and the chunk counts as lost
DEATHS_IN_A_ROW_MAX = 8  # of workers, without one sample in between; then the server ends and trials go on alone
WAITED_FOR_S = 300.0  # a member that is waited for is dropped when it was silent for so long
HELLO_TIMEOUT_S = 10.0  # after it connected
FIRST_MEMBER_S = 20.0  # beyond ``idle_s``: whoever had it started may be slow to come
AHEAD_OF_EPOCH = 32  # samples of an epoch that no member has come to yet: none of them may ever come
LOOK_S = 1.0
READS_AT_ONCE = 16
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """``memory_bytes`` bounds windows and cache together."""

    workers: int = 2
    memory_bytes: int = 1 << 30
    idle_s: float = 10.0  # without a member, before it ends


@dataclass(slots=True, kw_only=True)
class _Member:
    socket: socket.socket
    welcomed: bool = False
    asked: int = 0  # number of its last Ask
    heard_at: float = 0.0
    is_waited_for: bool = False


@dataclass(slots=True, kw_only=True)
class _Worker:
    process: Process
    chunks: deque[Fill] = field(default_factory=deque)
    since: float = 0.0  # it has had something to do


def plan(layout: Layout, *, order: GroupOrder, memory_bytes: int) -> Geometry:
    """Windows first, then the cache. SharingError when the memory does not hold one window of two blocks."""
    page, size = page_slots(layout.leaves), slot_bytes(layout.leaves)
    block = min(order.block, order.length)

    def whole(samples: int) -> int:
        return -(-samples // page) * page

    fitting = [whole(n * block) for n in range(2, WINDOW_BLOCKS + 1) if whole(n * block) * size <= memory_bytes]
    capacity = max(fitting, default=0)
    roomy = whole(WINDOW_SAMPLES)  # so that batches of many blocks fit in, too
    if capacity and roomy * size <= memory_bytes // 4:
        capacity = max(capacity, roomy)
    if not capacity:
        need = whole(2 * block) * size
        raise SharingError(
            f"sharing needs {need >> 20} MiB for two blocks of {block} samples of {size} bytes, and may take "
            f"{memory_bytes >> 20} MiB; raise its memory, or lower block_size"
        )
    windows = min(WINDOWS_MAX, max(1, memory_bytes // 2 // (capacity * size)))
    rest = memory_bytes - windows * capacity * size
    cached = min(order.length, max(0, rest // size - page))
    return Geometry(windows=windows, capacity=capacity, cached=cached, leaves=layout.leaves)


class SharedDataServer:
    """Serves on ``listening`` until nobody has been there for ``idle_s``. ``run`` is its whole life.

    The first sample is decoded here; SharingError when samples of its form cannot be shared.
    """

    def __init__(self, order: GroupOrder, samples: GroupSamples, options: ServerOptions) -> None:
        self._order, self._options = order, options
        self._layout = self._first_layout(samples, order)
        self.geometry = plan(self._layout, order=order, memory_bytes=options.memory_bytes)
        writable = make_ring(self.geometry)
        self._ring = Ring(self.geometry, writable, is_writer=True)
        seal_ring(writable)
        self._descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(writable)
        self._tools = Tools(ring=self._ring, layout=self._layout, samples=samples)
        ahead = min(order.block, self.geometry.capacity // 2)
        self._windows = SharedWindows(
            windows=self.geometry.windows,
            capacity=self.geometry.capacity,
            ahead=ahead,
            epoch=order.length,
            ahead_of_epoch=AHEAD_OF_EPOCH,
        )
        self._members: dict[int, _Member] = {}
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._listening: socket.socket | None = None
        self._not_for_workers: Sequence[int] = ()
        self._writing_cache: dict[int, Fill] = {}
        self._next_member = 0
        self._sample_s, self._sample_cpu_s = CHUNK_LATENCY_S, CHUNK_S
        self._deaths = 0
        self._look_at = 0.0
        self._idle_since = time.monotonic() + FIRST_MEMBER_S
        self.counts = {"decoded": 0, "from_cache": 0, "failed": 0, "workers_lost": 0, "members": 0}

    @staticmethod
    def _first_layout(samples: GroupSamples, order: GroupOrder) -> Layout:
        layout = Layout.of(samples.load(0, 0)) if order.length else None
        if layout is None or not layout.leaves:
            raise SharingError(
                "the first sample is not made of numbers, NumPy arrays and dense tensors on the CPU, in tuples, lists "
                "and dictionaries, and cannot be shared; let decode() return such arrays, and transform() the rest"
            )
        return layout

    # ── life ──────────────────────────────────────────────────────────────────────────────────
    def run(self, listening: socket.socket, *, not_for_workers: Sequence[int] = ()) -> None:
        """Until idle, or until workers die one after another. Every process and descriptor is gone when it returns.

        ``not_for_workers`` are descriptors that must be closed with this process.
        """
        self._listening, self._not_for_workers = listening, not_for_workers
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        try:
            for _ in range(max(1, self._options.workers)):
                self._start_worker()
            while self._goes_on():
                for key, _ in self._selector.select(LOOK_S):
                    key.data()
                self._give_work()
                self._look_at_clock()
        finally:
            self._close()

    def _goes_on(self) -> bool:
        if self._deaths >= DEATHS_IN_A_ROW_MAX:
            logger.error("workers_die_at_once", extra={"count": self._deaths})
            return False
        return bool(self._members) or time.monotonic() - self._idle_since < self._options.idle_s

    def _close(self) -> None:
        logger.info("shared_data_ended", extra=dict(self.counts))
        for number in list(self._members):
            self._drop(number)
        for worker in self._workers:
            worker.process.child.signal()
            worker.process.child.reap()
            worker.process.socket.close()
        self._workers.clear()
        self._selector.close()
        os.close(self._descriptor)

    # ── members ───────────────────────────────────────────────────────────────────────────────
    def _accept(self) -> None:
        assert self._listening is not None
        connection = accepted(self._listening)
        if connection is None:
            return
        if not is_own_user(connection) or len(self._members) >= MEMBERS_MAX:
            connection.close()  # without a word: a refusal would be an error of the trial's
            return
        number = self._next_member = self._next_member + 1
        self._members[number] = _Member(socket=connection, heard_at=time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(number))

    def _hear(self, number: int) -> None:
        member = self._members.get(number)
        for _ in range(READS_AT_ONCE if member is not None else 0):
            assert member is not None
            try:
                data = member.socket.recv(MESSAGE_BYTES)
                if not data:
                    self._drop(number)
                    return
                self._follow(number, member, data)
            except BlockingIOError:
                return
            except (OSError, ProtocolError, SharingError) as error:
                logger.warning("member_dropped", extra={"member": number, "error": error})
                self._drop(number)
            if number not in self._members:
                return

    def _follow(self, number: int, member: _Member, data: bytes) -> None:
        member.heard_at = time.monotonic()
        if not member.welcomed:
            self._welcome(number, member, decode(data))
            return
        ask: Ask = decode_ask(data)
        member.asked = ask.number
        self._answer(self._windows.ask(number, first=ask.first, last=ask.last, waits=ask.waits))

    def _welcome(self, number: int, member: _Member, hello: object) -> None:
        if not isinstance(hello, Hello):
            raise ProtocolError("the first message is a hello")
        reason = None
        if hello.version != VERSION:
            reason = f"this server speaks version {VERSION} and the trial {hello.version}"
        elif hello.fingerprint != self._order.fingerprint:
            reason = f"this server has dataset {self._order.fingerprint} and the trial {hello.fingerprint}"
        if reason is not None:
            _refuse(member.socket, reason)
            raise SharingError(reason)
        welcome = Welcome(version=VERSION, geometry=self.geometry, per_epoch=self._tools.samples.per_epoch)
        send_with_descriptor(member.socket, encode(welcome), self._descriptor)
        member.welcomed, member.is_waited_for = True, hello.is_waited_for
        self._windows.join(number, is_waited_for=hello.is_waited_for)
        self.counts["members"] += 1
        logger.info("member_joined", extra={"member": number, "pid": hello.pid})

    def _answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            member = self._members[answer.member]
            try:
                member.socket.send(encode_answer(Answered(number=member.asked, window=answer.window)))
            except OSError:  # gone, or it reads no answers
                self._drop(answer.member)

    def _drop(self, number: int) -> None:
        member = self._members.pop(number, None)
        if member is not None:
            self._windows.leave(number)
            self._selector.unregister(member.socket)
            member.socket.close()
            self._idle_since = time.monotonic()

    # ── workers ───────────────────────────────────────────────────────────────────────────────
    def _start_worker(self) -> None:
        process = start(self._tools, in_child=self._close_in_worker)
        worker = _Worker(process=process)
        self._workers.append(worker)
        self._selector.register(process.socket, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        self._selector.register(process.child.descriptor, selectors.EVENT_READ, lambda: self._lose_worker(worker))

    def _close_in_worker(self) -> None:
        """A descriptor held there would keep a connection open that has ended here."""
        self._selector.close()
        assert self._listening is not None
        self._listening.close()
        for descriptor in (self._descriptor, *self._not_for_workers):
            os.close(descriptor)
        for member in self._members.values():
            member.socket.close()
        for worker in self._workers:
            worker.process.socket.close()
            worker.process.child.forget()

    def _hear_worker(self, worker: _Worker) -> None:
        try:
            for _ in range(len(worker.chunks)):
                data = worker.process.socket.recv(TIMES_BYTES + CHUNK_MAX)
                if not data or worker not in self._workers:
                    return
                self._take(worker, *read_answer(data))
        except BlockingIOError:
            return
        except OSError as error:
            logger.warning("worker_unreadable", extra={"pid": worker.process.child.pid, "error": error})
        # A worker that died is noticed by its pidfd, and not here.

    def _take(self, worker: _Worker, seconds: float, worked: float, made: bytes) -> None:
        fill = worker.chunks.popleft()
        worker.since = time.monotonic()
        self._deaths = 0
        self.counts["decoded"] += made.count(1)
        self.counts["from_cache"] += made.count(2)
        self.counts["failed"] += made.count(0)
        self._sample_s += 0.2 * (seconds / fill.count - self._sample_s)
        self._sample_cpu_s += 0.2 * (worked / fill.count - self._sample_cpu_s)
        self._let_go_of_cache(fill)
        self._answer(self._windows.filled(fill.window, fill.first, fill.count))

    def _lose_worker(self, worker: _Worker) -> None:
        self._hear_worker(worker)  # what it had done before
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._selector.unregister(worker.process.socket)
        self._selector.unregister(worker.process.child.descriptor)
        worker.process.child.reap()
        worker.process.socket.close()
        self._deaths += 1
        self.counts["workers_lost"] += 1
        logger.warning("worker_lost", extra={"pid": worker.process.child.pid, "chunks": len(worker.chunks)})
        for number, fill in enumerate(worker.chunks):
            self._let_go_of_cache(fill)
            blamed = number == 0  # the others it had not begun
            self._answer(self._windows.lost(fill.window, fill.first, fill.count, is_blamed=blamed))
        if self._deaths < DEATHS_IN_A_ROW_MAX:
            self._start_worker()

    def _give_work(self) -> None:
        for depth in range(1, CHUNKS_PER_WORKER + 1):
            for worker in list(self._workers):
                if len(worker.chunks) < depth and not self._give(worker):
                    return

    def _give(self, worker: _Worker) -> bool:
        """Whether there was something to do."""
        fits = min(CHUNK_S / max(self._sample_cpu_s, 1e-6), CHUNK_LATENCY_S / max(self._sample_s, 1e-6))
        limit = min(CHUNK_MAX, max(1, int(fits)))
        fill = self._windows.next_fill(limit)
        if fill is None:
            return False
        if not worker.chunks:
            worker.since = time.monotonic()
        worker.chunks.append(fill)
        try:
            worker.process.socket.send(self._order_to_fill(fill))
        except OSError as error:
            logger.warning("worker_unwritable", extra={"pid": worker.process.child.pid, "error": error})
        return True

    def _order_to_fill(self, fill: Fill) -> bytes:
        positions = np.arange(fill.first, fill.first + fill.count, dtype=np.int64)
        order = np.empty((fill.count, COLUMNS), dtype=np.int64)
        slots = fill.window * self.geometry.capacity + positions % self.geometry.capacity
        self._ring.keys[slots] = EMPTY  # before anybody writes there
        fence()
        order[:, 0], order[:, 1], order[:, 2] = positions, slots, positions // self._order.length
        order[:, 3] = self._order.indices_of_stream(fill.first, fill.count)
        order[:, 4], order[:, 5] = -1, 0
        for row in np.flatnonzero(order[:, 3] < self.geometry.cached).tolist():
            slot = self._ring.cache_slot(int(order[row, 3]))
            assert slot is not None
            order[row, 4] = slot
            order[row, 5] = self._may_write_cache(slot, int(order[row, 2]), fill)
        return order.tobytes()

    # ── the cache ─────────────────────────────────────────────────────────────────────────────
    def _may_write_cache(self, slot: int, epoch: int, fill: Fill) -> bool:
        """Never what a member may still need: within an epoch nothing is taken out. One writer at a time."""
        found = int(self._ring.keys[slot])
        key = cache_key(epoch if self._tools.samples.per_epoch else 0)
        if slot in self._writing_cache or found == key:
            return False
        if found > key and self._windows.has_member_in((found - 1) * self._order.length, found * self._order.length):
            return False
        self._writing_cache[slot] = fill
        return True

    def _let_go_of_cache(self, fill: Fill) -> None:
        for slot in [slot for slot, writer in self._writing_cache.items() if writer is fill]:
            del self._writing_cache[slot]

    # ── the clock ─────────────────────────────────────────────────────────────────────────────
    def _look_at_clock(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for worker in self._workers:
            if worker.chunks and now - worker.since > FILL_TIMEOUT_S:
                logger.error("worker_hangs", extra={"pid": worker.process.child.pid, "first": worker.chunks[0].first})
                worker.process.child.signal()
        for number, member in list(self._members.items()):
            silent = now - member.heard_at
            holds_up = member.is_waited_for and silent > WAITED_FOR_S and self._windows.is_waiting()
            if holds_up or (not member.welcomed and silent > HELLO_TIMEOUT_S):
                logger.warning("member_silent", extra={"member": number})
                self._drop(number)


def _refuse(connection: socket.socket, reason: str) -> None:
    try:
        connection.send(encode(Refused(reason=reason)))
    except OSError as error:
        logger.debug("not_refused", extra={"error": error})
