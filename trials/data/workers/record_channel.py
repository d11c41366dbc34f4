"""A socket pair for records between processes of one loader, with the file descriptors that belong to them."""

from __future__ import annotations

import os
import pickle
import select
import socket
import time
from typing import Any, NamedTuple

from trials.data.workers.shared_memory import SharedMemory

RECORD_LIMIT = 60_000  # bytes; larger ones travel as memory of their own
DESCRIPTORS_LIMIT = 4  # with one record
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_INLINE, _OUTSIDE = b"i", b"o"


class Received(NamedTuple):
    value: Any
    descriptors: tuple[int, ...]  # the receiver's to close


class Channel:
    """One end of a socket pair that keeps records apart. Records are pickles: only for processes of one loader."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(ours), Channel(theirs)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, value: Any, descriptors: tuple[int, ...] = ()) -> bool:
        """False when nobody is at the other end any more."""
        data = pickle.dumps(value, protocol=5)
        try:
            if len(data) <= RECORD_LIMIT:
                self._send(_INLINE + data, descriptors)
            else:
                memory = SharedMemory.create(len(data), name="trials-data-record")
                try:
                    memory.bytes(0, len(data))[:] = memoryview(data)
                    self._send(_OUTSIDE, (memory.descriptor, *descriptors))
                finally:
                    memory.close()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> Received | None:
        """The next record, waiting for it; None when the other end is gone."""
        try:
            data, descriptors = self._receive()
        except ConnectionResetError:
            # ECONNRESET: the other end died with records of ours unread. The kernel reports that once, and what the
            # other end had sent before it died can be received after it.
            data, descriptors = self._receive()
        if not data:
            return None
        if data[:1] == _INLINE:
            return Received(pickle.loads(data[1:]), tuple(descriptors))  # noqa: S301  # from our own process
        memory = SharedMemory.attach(descriptors[0], writable=False)
        memory.close()
        return Received(pickle.loads(memory.bytes().tobytes()), tuple(descriptors[1:]))  # noqa: S301  # from our own process

    def is_readable(self, deadline: float) -> bool:
        """Whether ``receive`` need not wait, for a record or the end; looked at once, and again until ``deadline``."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def hang_up(self) -> None:
        """The other end sees the end at once, whoever else still holds this socket."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was gone already

    def detach(self) -> int:
        """The descriptor, which is the caller's from now on."""
        return self._socket.detach()

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> tuple[bytes, list[int]]:
        data, descriptors, _, _ = socket.recv_fds(self._socket, RECORD_LIMIT + 1, DESCRIPTORS_LIMIT, _CLOEXEC)
        return data, descriptors

    def _send(self, data: bytes, descriptors: tuple[int, ...]) -> None:
        if descriptors:
            socket.send_fds(self._socket, [data], list(descriptors))
        else:
            self._socket.send(data)


def close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
