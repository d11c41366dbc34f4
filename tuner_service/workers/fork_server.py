"""The process that algorithm workers are forked from: it has imported what every worker imports, and has one thread.

``python -P -m tuner_service.workers.fork_server RECORDS MEMORY_BYTES``; no code of users runs there. Its standard input
is a socket. An order there is one message with four descriptors: the worker's standard streams, and where its end is to
be written, in the numbers of ``Popen.returncode``. The answer is the pid of the worker's keeper with a pidfd of it, or
why there is none. It ends when the socket does; the workers that it has forked do not notice.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from trials.processes.keeping import SAYS, keep_forked
from trials.processes.marks import NONCE_VARIABLE, FirstMemory
from trials.processes.parents import Waker, end_mask, ending_of, fork, leave_handlers
from tuner_service.workers import worker

ORDER_BYTES = 64
STREAMS = 3
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_TITLE = [sys.executable, "-P", "-m", worker.__name__]  # what other processes see of a worker and of its keeper


class ForkServer:
    """One keeper with one worker for each order."""

    def __init__(self, orders: socket.socket, *, records: str, memory_bytes: int) -> None:
        self._orders, self._records, self._memory_bytes = orders, records, memory_bytes
        self._first = FirstMemory()
        self._ends: dict[int, int] = {}  # by the pid of a keeper, where its end is to be written

    def run(self) -> None:
        """Until nobody can order any more."""
        waker = Waker([signal.SIGCHLD], ignored=_OF_TERMINALS)
        poller = select.poll()
        poller.register(waker.descriptor, select.POLLIN)
        poller.register(self._orders, select.POLLIN)
        gc.freeze()  # a child's collector looks at nothing that was here before it
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            waker.drain()
            self._reap()
            if self._orders.fileno() in ready and not self._follow():
                return

    def _follow(self) -> bool:
        """Whether there may be another order after this one."""
        try:
            order, given, _, _ = socket.recv_fds(self._orders, ORDER_BYTES, STREAMS + 1)
        except OSError:
            return False
        if not order:
            return False
        try:
            if len(given) != STREAMS + 1:
                raise OSError(0, f"{len(given)} descriptors came with it")
            pid = self._fork(given[:STREAMS])
        except OSError as error:
            self._close(given)
            self._answer(f"cannot be forked: {error}", [])
        else:
            self._close(given[:STREAMS])
            self._ends[pid] = given[STREAMS]
            descriptor = os.pidfd_open(pid)
            self._answer(str(pid), [descriptor])
            os.close(descriptor)
        return True

    def _answer(self, text: str, descriptors: list[int]) -> None:
        with suppress(OSError):  # who has ordered it is gone, and so are the other sides of its streams
            socket.send_fds(self._orders, [text.encode()], descriptors)

    def _close(self, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    def _reap(self) -> None:
        for pid, end in list(self._ends.items()):
            if ending_of(pid) is not None:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):
                    os.write(end, str(code).encode())
                os.close(end)
                del self._ends[pid]

    # ── in the children ─────────────────────────────────────────────────────────────────────────
    def _fork(self, streams: list[int]) -> int:
        self._first.prepare(nonce=None, command=_TITLE)
        pid = fork()
        if pid == 0:
            self._be_keeper(streams)
        return pid

    def _be_keeper(self, streams: list[int]) -> NoReturn:
        """As if it had been started anew: nothing is left of the server but memory."""
        try:
            self._first.show()
            leave_handlers()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            _close_all_but_streams()
            end_mask()
            keep_forked(self._become_worker, records=self._records, memory_bytes=self._memory_bytes)
        except BaseException as error:  # noqa: BLE001  a child that goes on would be a second server
            os.write(2, f"{SAYS}its keeper could not begin: {error!r}\n".encode(errors="replace"))
        finally:
            os._exit(1)

    def _become_worker(self, nonce: str) -> None:
        _close_all_but_streams()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as an interpreter does when it starts, and the next
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ[NONCE_VARIABLE] = nonce
        self._first.prepare(nonce=nonce, command=_TITLE)
        self._first.show()
        sys.argv[:] = [worker.__file__]
        _seed_anew()
        worker.main()


def _close_all_but_streams() -> None:
    """No descriptor of the parent's, whose number the algorithm may be given."""
    os.closerange(STREAMS, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208  numbers, not paths


def _seed_anew() -> None:
    """What has a generator of its own beside that of ``random``, which does so by itself: each worker has other numbers
    where a class of a user draws without a seed."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def main() -> int:
    orders = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
    records, memory_bytes = sys.argv[1:]
    ForkServer(orders, records=records, memory_bytes=int(memory_bytes)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
