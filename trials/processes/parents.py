"""What a parent and its child owe each other: the child dies with the parent, and nothing of it escapes the parent.

The parent waits for signals as for any other event, keeps a child's number from strangers until it has reaped it, and
adopts what its children leave behind.
A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

# The module that ``signal`` wraps: each call of ``signal.signal`` converts numbers to members of enumerations and back,
# which a forked child pays for with the memory that it copies. docs/speed.md has the figure.
import _signal  # type: ignore[import-not-found]  # no stubs: it is private
import ctypes
import os
import signal
from collections.abc import Iterable
from typing import Any

from trials.processes.libc import LIBC

# Those that some parent has a handler for, as plain numbers.
HANDLED = tuple(map(int, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)))
DEFAULT, IGNORE = int(signal.SIG_DFL), int(signal.SIG_IGN)
_BLOCK, _SET_MASK, _KILL = map(int, (signal.SIG_BLOCK, signal.SIG_SETMASK, signal.SIGKILL))
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WAKER_READ_BYTES = 4096


# ── in the parent ───────────────────────────────────────────────────────────────────────────────
def become_subreaper() -> None:
    """Descendants whose parent ends become children of this process instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Waker:
    """The signals of this process as something to poll for: ``descriptor`` is readable when one has come.

    ``wakes`` get a handler that does nothing else; a handler of the caller's own for a further signal wakes as well.
    """

    def __init__(self, wakes: Iterable[int], *, ignored: Iterable[int] = ()) -> None:
        self.descriptor, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in wakes:
            signal.signal(number, lambda *_: None)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    def drain(self) -> None:
        """To be called before looking at what may have changed: a signal that comes later wakes again."""
        try:
            while os.read(self.descriptor, _WAKER_READ_BYTES):
                pass
        except BlockingIOError:
            return


def fork() -> int:
    """As os.fork(). No signal reaches the child before ``end_mask``, and none is lost on the parent's handlers.

    Without the mask, a signal that was sent to the child between the fork and its first steps would be taken by the
    handler that it has from its parent, and the child would go on as if nobody had told it to end.
    """
    before = _signal.pthread_sigmask(_BLOCK, HANDLED)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            _signal.pthread_sigmask(_SET_MASK, before)
    return pid


def ending_of(pid: int, *, waits: bool = False) -> Any:
    """What waitid(2) says of a child that has ended; None while it runs.

    The child is not reaped: as long as it is a zombie, its pid cannot become another process's.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | (0 if waits else os.WNOHANG))


class Child:
    """A forked process as its parent has it, from the fork until it was reaped. ``descriptor`` is its pidfd."""

    __slots__ = ("descriptor", "pid")

    def __init__(self, pid: int) -> None:
        """ProcessLookupError where somebody else waits for every child of this process."""
        self.pid = pid
        self.descriptor = os.pidfd_open(pid)

    def signal(self, number: int = _KILL) -> None:
        """It was not reaped yet, so nobody else has its number. A child that has ended stays as it is."""
        os.kill(self.pid, number)

    def reap(self) -> int:
        """Wait for its end; its exit code, minus the signal where one ended it. ChildProcessError as above."""
        self.forget()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def forget(self) -> None:
        """Let go of the descriptor; all that a sibling, which has it from the parent, may do with it."""
        os.close(self.descriptor)


# ── in the child ────────────────────────────────────────────────────────────────────────────────
def leave_handlers(action: int = DEFAULT) -> None:
    """From here on a signal does to this process what it does to any; or nothing, with IGNORE."""
    _signal.set_wakeup_fd(-1)
    for number in HANDLED:
        _signal.signal(number, action)


def end_mask() -> None:
    """Signals that were held back since ``fork`` come now."""
    _signal.pthread_sigmask(_SET_MASK, ())


def die_with(parent: int, *, code: int = 1) -> None:
    """The kernel kills this process when ``parent`` ends; it exits with ``code`` where that has happened already.

    The death signal is sent once, when the parent ends: a parent that ended before it was asked for is noticed by its
    number only, which the child has no more.
    """
    _prctl(_PR_SET_PDEATHSIG, _KILL)
    if os.getppid() != parent:
        os._exit(code)


def _prctl(option: int, value: int) -> None:
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")
