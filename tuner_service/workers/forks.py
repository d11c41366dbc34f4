"""Workers as forks of one process that has imported what each of them imports.

To start an interpreter and to import costs a worker a fifth of a second of a processor, and a service with a hundred
experiments has a hundred workers to start. A fork costs some milliseconds, and shares the memory of the imports.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trials.processes.marks import NONCE_PLACE_BYTES, NONCE_VARIABLE
from tuner_service.workers.starting import (
    RECORDS,
    WORKER_MEMORY_BYTES,
    WorkerProcess,
    environment,
    spawn_worker,
)

ANSWER_S = 10.0  # for the server to fork; with less than all of it gone it may be importing still
NEXT_SERVER_S = 2.0  # after one was lost: it is not tried at once what has just failed
_ORDER = b"fork"
_ANSWER_BYTES = 1_024
_CODE_BYTES = 16


class _CannotForkError(OSError):
    """The server is well, and the machine has no room for another process."""


class ForkedWorker:
    """What a ``Popen`` is for a child, for the keeper of a worker, whose parent is the fork server.

    ``ended``: where the server writes how it ended; that pipe closes without a word where the server dies first.
    Any thread.
    """

    def __init__(self, pid: int, pidfd: int, *, ended: int, streams: tuple[IO[bytes], IO[bytes], IO[bytes]]) -> None:
        self.pid, self._pidfd, self._ended = pid, pidfd, ended
        self.stdin: IO[bytes] | None
        self.stdout: IO[bytes] | None
        self.stderr: IO[bytes] | None
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        for descriptor in (self._pidfd, self._ended):  # not before: another thread may be waiting for them
            with suppress(OSError):
                os.close(descriptor)

    def poll(self) -> int | None:
        """Its exit code, minus the signal where one ended it; None while it lives."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """As ``poll``, once it has ended; subprocess.TimeoutExpired otherwise."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and _is_readable(self._ended, timeout):
            with self._lock:  # one thread reads the code, and the others find that it was read
                if self.returncode is None and (code := os.read(self._ended, _CODE_BYTES)):
                    self.returncode = int(code)
            if self.returncode is None and _is_readable(self._pidfd, timeout):
                self.returncode = -signal.SIGKILL  # the server is gone, and nobody knows any more how it ended
        return self.returncode


@dataclass(kw_only=True)
class WorkerForks:
    """The fork server as the service has it. Where it is not to be had, a worker is started anew. Any thread."""

    folder: Path
    memory_bytes: int = WORKER_MEMORY_BYTES
    answer_s: float = ANSWER_S
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: subprocess.Popen[bytes] | None = None
    _orders: socket.socket | None = None
    _timer: threading.Timer | None = None
    _closed: bool = False

    @property
    def pid(self) -> int | None:
        return None if self._server is None else self._server.pid

    def prepare(self) -> None:
        """Start the server unless there is one. A machine that cannot start it now can do without."""
        with self._lock:
            if self._closed or (self._server is not None and self._server.poll() is None):
                return
            self._discard()
            with suppress(OSError):
                self._start()

    def take(self, folder: Path) -> WorkerProcess:
        """A fork if there is a server that forks, else a process that is started in ``folder``.

        OSError where no process can be started.
        """
        with self._lock:
            if self._orders is not None:
                try:
                    return _forked(self._orders)
                except _CannotForkError:
                    pass
                except (OSError, ValueError):  # it has ended, or hangs
                    self._discard()
            if self._server is None:
                self._try_later()
        return spawn_worker(folder, memory_bytes=self.memory_bytes)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._discard()

    # ── the server; under the lock ──────────────────────────────────────────────────────────────
    def _start(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        records = str(self.folder.absolute() / RECORDS)
        with its:
            try:
                self._server = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "tuner_service.workers.fork_server"),
                        *(records, str(self.memory_bytes)),
                    ],
                    stdin=its.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**environment(), NONCE_VARIABLE: "-" * NONCE_PLACE_BYTES},
                    cwd=self.folder,
                )
            except BaseException:
                ours.close()
                raise
        ours.settimeout(self.answer_s)
        self._orders = ours

    def _discard(self) -> None:
        """What it has forked goes on."""
        if self._orders is not None:
            self._orders.close()
        if self._server is not None:
            self._server.kill()  # it may hang, and leaves nothing
            self._server.wait()
        self._server = self._orders = None

    def _try_later(self) -> None:
        if not self._closed and (self._timer is None or not self._timer.is_alive()):
            self._timer = threading.Timer(NEXT_SERVER_S, self.prepare)
            self._timer.daemon = True
            with suppress(RuntimeError):  # without a thread to spare it is tried with the next worker
                self._timer.start()


def _forked(orders: socket.socket) -> ForkedWorker:
    """OSError or ValueError where the server does not do it."""
    given, kept = list[int](), list[int]()
    try:
        for ours_reads in (False, True, True, True):
            reading, writing = os.pipe()
            kept.append(reading if ours_reads else writing)
            given.append(writing if ours_reads else reading)
        socket.send_fds(orders, [_ORDER], given)
        answer, descriptors, _, _ = socket.recv_fds(orders, _ANSWER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not answer:
            raise OSError(0, "the fork server has ended")
        if len(descriptors) != 1:
            raise _CannotForkError(0, answer.decode(errors="replace"))
        pid, pidfd = int(answer), descriptors[0]
    except BaseException:
        for descriptor in kept:
            os.close(descriptor)
        raise
    finally:
        for descriptor in given:
            os.close(descriptor)
    streams = (open(kept[0], "wb"), open(kept[1], "rb"), open(kept[2], "rb"))  # noqa: SIM115, PTH123  the worker's
    return ForkedWorker(pid, pidfd, ended=kept[3], streams=streams)


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    """Whether something, or the end, can be read there within so many seconds; None: however long it takes."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout is None else timeout * 1000))
