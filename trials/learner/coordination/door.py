"""The door of a learner: one coordinator at a time asks, and is answered in order."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trials.learner.coordination.frames import READ_BYTES, Frames, encode
from trials.learner.coordination.messages import WAIT_LIMIT_S, ErrorKind, GetData, RefusedError, Request, read_request
from trials.processes.forking import LoopThread
from trials.wire.peers import accepted, is_own_user
from trials.wire.plain import ProtocolError

IDLE_LIMIT_S = 60.0  # of a coordinator that says nothing, or does not read: another one may come
_GONE = select.POLLHUP | select.POLLERR | select.POLLRDHUP | select.POLLNVAL
Answer = Callable[[Request, bool], dict[str, Any] | None]


class Door:
    """Serves ``listening`` in a thread of its own until ``close``.

    ``answer(request, is_last)`` gives the answer, or None where the request should wait for news; with ``is_last`` it
    gives one. It is called while ``changed`` is held; ``ring`` has a request that waits asked once more.
    """

    def __init__(self, listening: socket.socket, changed: threading.Condition, answer: Answer) -> None:
        self._listening, self._changed, self._answer = listening, changed, answer
        self._peer: _Peer | None = None
        self._is_closing = False
        self.failure: BaseException | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = LoopThread(self._serve, changed, name="learner port")
        self._thread.start()

    def ring(self) -> None:
        """Something has changed. The caller holds the lock."""
        self._changed.notify_all()
        if not self._is_closing:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Nobody is heard any more."""
        with self._changed:
            if self._is_closing:
                return
            self.ring()
            self._is_closing = True
        self._thread.join()
        self._drop()
        self._listening.close()
        os.close(self._wake)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _serve(self) -> None:
        try:
            while self._round():
                pass
        except BaseException as error:  # noqa: BLE001  # raised in the training, which would wait for ever
            with self._changed:
                self.failure = error
                self._changed.notify_all()

    def _round(self) -> bool:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(self._listening, select.POLLIN)
        peer = self._peer
        if peer is not None:
            poller.register(peer.connection, peer.events())
        ready = dict(poller.poll(None if peer is None else max(0.0, peer.due - time.monotonic()) * 1000))
        with self._changed:
            if self._is_closing:
                return False
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            if peer is not None:
                self._attend(peer, ready.get(peer.connection.fileno(), 0))
            if self._listening.fileno() in ready:
                self._let_in()
        return True

    def _let_in(self) -> None:
        connection = accepted(self._listening)
        if connection is None:
            return
        if not is_own_user(connection):
            connection.close()
        elif self._peer is not None:
            with suppress(OSError):
                connection.send(encode(_error("busy", "another coordinator is heard by this learner; it goes first")))
            connection.close()
        else:
            self._peer = _Peer(connection)

    def _attend(self, peer: _Peer, events: int) -> None:
        try:
            if events & select.POLLIN and not peer.read():
                return self._drop()
            peer.write()
            self._answer_all(peer)
        except OSError:
            return self._drop()
        if events & _GONE or (peer.is_last and not peer.out) or time.monotonic() >= peer.idle_at:
            self._drop()
        return None

    def _answer_all(self, peer: _Peer) -> None:
        """Those that wait for news are answered again; the next is looked at when the one before has its answer."""
        while not peer.out and not peer.is_last:
            try:
                message = peer.waiting or peer.frames.next()
                if message is None:
                    return
                request = message if isinstance(message, GetData) else read_request(message)
                answer = self._answered(peer, request)
            except RefusedError as error:
                peer.waiting, answer = None, _error(error.kind, str(error))
            except ProtocolError as error:  # where its next frame begins is not known
                peer.is_last, answer = True, _error("malformed", str(error)[:500])
            if answer is None:
                return
            peer.out += encode(answer)
            peer.write()

    def _answered(self, peer: _Peer, request: Request) -> dict[str, Any] | None:
        now = time.monotonic()
        peer.idle_at = now + IDLE_LIMIT_S
        if isinstance(request, GetData) and peer.waiting is None:
            peer.waiting, peer.due = request, now + min(max(0.0, request.wait_s), WAIT_LIMIT_S)  # NaN is 0
        answer = self._answer(request, now >= peer.due)
        if answer is None:
            return None
        peer.waiting, peer.due = None, peer.idle_at
        return {"ok": answer}

    def _drop(self) -> None:
        if self._peer is not None:
            self._peer.connection.close()
            self._peer = None


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames()
        self.out = bytearray()
        self.waiting: GetData | None = None
        self.is_last = False  # it is answered, and hears no more
        self.idle_at = self.due = time.monotonic() + IDLE_LIMIT_S

    def events(self) -> int:
        """It reads while there is nothing to be answered: what comes meanwhile waits with its sender."""
        busy = bool(self.out) or self.waiting is not None
        return select.POLLRDHUP | (select.POLLOUT if self.out else 0) | (0 if busy else select.POLLIN)

    def read(self) -> bool:
        data = self.connection.recv(READ_BYTES)
        self.frames.add(data)
        return bool(data)

    def write(self) -> None:
        with suppress(BlockingIOError):
            while self.out:
                del self.out[: self.connection.send(self.out)]


def _error(kind: ErrorKind, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}
