"""The client of the node's producer: it copies the samples that are in the ring, and says which are not."""

from __future__ import annotations

import os
import select
import socket
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trials.data.core.sample_layout import Array, Bytes, Layout
from trials.data.errors import SharingError
from trials.data.sharing.producer_protocol import (
    VERSION,
    Ask,
    Hello,
    Refused,
    Welcome,
    decode,
    decode_answer,
    encode,
    encode_ask,
    receive_with_descriptor,
    require_private,
)
from trials.data.sharing.ring import Ring, cache_key, fence, require_possible, require_sealed
from trials.wire.peers import is_own_user
from trials.wire.plain import ProtocolError

GREETING_TIMEOUT_S = 10.0  # the server answers at once; one that does not hangs
SILENCES_MAX = 3  # in a row, each as long as the patience; then the server counts as lost
ANSWER_BYTES = 64
Positions = NDArray[np.int64]


class LinkLostError(ConnectionError):
    """The server ended, or says nothing any more: from here on the trial decodes for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The samples of a batch in its order. ``first`` and ``last`` are what the trial tells the server (see Ask)."""

    epoch: int
    positions: Positions  # of the stream
    indices: Positions
    first: int
    last: int

    @property
    def is_chosen(self) -> bool:
        """A sampler chose them, so they have no positions in the stream."""
        return self.first < 0


class Link:
    """Not for several threads. Closed in the children of a fork, so that the trial's end is its only end."""

    _open: ClassVar[weakref.WeakSet[Link]] = weakref.WeakSet()

    def __init__(self, connection: socket.socket, welcome: Welcome, ring: Ring, *, patience_s: float) -> None:
        self._socket, self._ring, self._patience_s = connection, ring, patience_s
        self._per_epoch = welcome.per_epoch
        self._window: int | None = None
        self._number = 0
        self._silences = 0
        self._told_first = self._told_last = -1
        self.wait_s = 0.0
        self._open.add(self)

    @classmethod
    def open(cls, path: Path, layout: Layout, hello: Hello, *, patience_s: float) -> Link:
        """SharingError when the server refuses or has other samples; OSError when there is none."""
        require_private(path.parent)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(GREETING_TIMEOUT_S)
            connection.connect(str(path))
            if not is_own_user(connection):
                raise SharingError(f"{path} is served by another user")
            welcome, ring = _greet(connection, layout, hello)
            connection.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
            return cls(connection, welcome, ring, patience_s=patience_s)
        except (OSError, SharingError):
            connection.close()
            raise
        except ProtocolError as error:
            connection.close()
            raise SharingError(f"the server at {path} does not speak as one: {error}") from error

    def close(self) -> None:
        self._open.discard(self)
        self._socket.close()

    @classmethod
    def close_all(cls) -> None:
        """In the child of a fork."""
        for link in list(cls._open):
            link.close()

    # ── samples ───────────────────────────────────────────────────────────────────────────────
    def fetch(self, wanted: Wanted, out: Sequence[Bytes]) -> NDArray[np.bool_]:
        """Copy what the server has, a row of each leaf of ``out`` for each sample; True for those that were copied.

        Waits until the server has decoded them, or says that it will not. LinkLostError when it is gone.
        """
        if wanted.is_chosen:
            pass  # the server is not asked: only its cache may have them
        elif self._has_all(wanted.positions):
            self._tell(wanted)
        else:
            self._wait_for(wanted)
        slots, keys = self._found(wanted)
        there = slots >= 0
        fence()
        if there.all():
            self._ring.gather(slots, out)
        else:
            for row in np.flatnonzero(there).tolist():
                for target, source in zip(out, self._ring.rows(int(slots[row])), strict=True):
                    target[row] = source[: target.shape[1]]
        fence()
        there[there] = self._ring.keys[slots[there]] == keys[there]
        return there

    def in_place(self, wanted: Wanted) -> list[Array] | None:
        """The leaves of consecutive positions as they lie in the ring; None when they are not all there.

        They stay until the next call, unless ``still_there`` says otherwise.
        """
        if self._has_all(wanted.positions):
            self._tell(wanted)
        else:
            self._wait_for(wanted)
        if not self._has_all(wanted.positions):
            return None
        fence()
        assert self._window is not None
        return self._ring.run(self._window, int(wanted.positions[0]), len(wanted.positions))

    def still_there(self, wanted: Wanted) -> bool:
        fence()
        return self._has_all(wanted.positions)

    def _has_all(self, positions: Positions) -> bool:
        if self._window is None:
            return False
        capacity = self._ring.geometry.capacity
        keys = self._ring.keys[self._window * capacity + positions % capacity]
        return bool((keys == positions + 1).all())

    def _found(self, wanted: Wanted) -> tuple[Positions, NDArray[np.uint64]]:
        """The slot of each sample and the key that it must have; slot -1 where the server has it nowhere."""
        geometry = self._ring.geometry
        keys = (wanted.positions + 1).astype(np.uint64)
        slots = np.full(len(keys), -1, dtype=np.int64)
        if self._window is not None and not wanted.is_chosen:
            places = self._window * geometry.capacity + wanted.positions % geometry.capacity
            slots = np.where(self._ring.keys[places] == keys, places, slots)
        cached = (slots < 0) & (wanted.indices < geometry.cached)
        if cached.any():
            key = np.uint64(cache_key(wanted.epoch if self._per_epoch else 0))
            places = geometry.windows * geometry.capacity + np.minimum(wanted.indices, geometry.cached - 1)
            cached &= self._ring.keys[places] == key
            slots, keys = np.where(cached, places, slots), np.where(cached, key, keys)
        return slots, keys

    # ── the conversation ──────────────────────────────────────────────────────────────────────
    def _tell(self, wanted: Wanted) -> None:
        """How far the trial is, where that is news. Not worth waiting for: the next one says it, too."""
        if wanted.first == self._told_first and wanted.last <= self._told_last:
            return
        self._number += 1
        self._told_first, self._told_last = wanted.first, wanted.last
        try:
            self._socket.send(encode_ask(Ask(number=self._number, first=wanted.first, last=wanted.last, waits=False)))
        except BlockingIOError:
            self._told_first = -1
        except OSError as error:
            raise LinkLostError(f"the server ended: {error}") from error

    def _wait_for(self, wanted: Wanted) -> None:
        self._number += 1
        self._told_first, self._told_last = wanted.first, wanted.last
        began = time.perf_counter()
        deadline = time.monotonic() + self._patience_s
        ask = encode_ask(Ask(number=self._number, first=wanted.first, last=wanted.last, waits=True))
        try:
            self._send(ask, deadline)
            self._read_answer(deadline)
            self._silences = 0
        except TimeoutError as error:
            self._silences += 1
            self._window = None
            if self._silences >= SILENCES_MAX:
                raise LinkLostError(
                    f"the server said nothing for {self._patience_s:g} s, {self._silences} times"
                ) from error
        except (OSError, ProtocolError) as error:
            raise LinkLostError(f"the server ended: {error}") from error
        finally:
            self.wait_s += time.perf_counter() - began

    def _send(self, data: bytes, deadline: float) -> None:
        while True:
            try:
                self._socket.send(data)
                return
            except BlockingIOError:
                self._poll(select.POLLOUT, deadline)

    def _read_answer(self, deadline: float) -> None:
        while True:
            self._poll(select.POLLIN, deadline)
            try:
                data = self._socket.recv(ANSWER_BYTES)
            except BlockingIOError:
                continue
            if not data:
                raise LinkLostError("the server ended")
            answer = decode_answer(data)
            if answer.number == self._number:
                window = answer.window
                self._window = window if window is not None and window < self._ring.geometry.windows else None
                return

    def _poll(self, event: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        poller = select.poll()
        poller.register(self._socket, event)
        if left <= 0 or not poller.poll(left * 1000):
            raise TimeoutError("no answer")


os.register_at_fork(after_in_child=Link.close_all)


def greeting(fingerprint: str, *, is_waited_for: bool) -> Hello:
    return Hello(version=VERSION, fingerprint=fingerprint, is_waited_for=is_waited_for, pid=os.getpid())


def _greet(connection: socket.socket, layout: Layout, hello: Hello) -> tuple[Welcome, Ring]:
    connection.send(encode(hello))
    data, descriptor = receive_with_descriptor(connection)
    if not data:
        raise ConnectionResetError("the server ended before it had answered")
    try:
        answer = decode(data)
        if isinstance(answer, Refused):
            raise SharingError(answer.reason)
        if not isinstance(answer, Welcome) or descriptor is None:
            raise ProtocolError("expected a welcome with the ring")
        if answer.geometry.leaves != layout.leaves:
            raise SharingError(f"the server has samples of {answer.geometry.leaves} and this trial of {layout.leaves}")
        require_possible(answer.geometry)
        require_sealed(descriptor, answer.geometry)
        return answer, Ring(answer.geometry, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
