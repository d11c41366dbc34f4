"""Whether a fork of this process is safe to work in, and the fork."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

_FUTEX = {"x86_64": "202", "aarch64": "98"}  # system call numbers
_TASKS = Path("/proc/self/task")
# At threads that may be about to fall asleep: one that has done its work still waits for a core where none is free.
# Whoever cannot fork starts an interpreter, which takes longer than this.
_SETTLE_S = 0.5
_PAUSE_S = 0.01
_LOCK_WAIT_S = 1.0
_PASSING_WAIT_S = 5.0


class LoopThread(threading.Thread):
    """A thread of a loader. Whoever holds its lock may fork beside it, unless it is ``busy``: it then waits, and holds
    nothing. A thread that runs code of the trial's without its lock is busy meanwhile."""

    def __init__(
        self,
        work: Callable[[], None],
        lock: threading.Condition,
        *,
        name: str = "data loader",
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self.lock = lock
        self.busy = busy


def unsafe_to_fork() -> str:
    """What makes a fork unsafe; empty when nothing does.

    That is: no CUDA, no other thread that runs Python (but those of ours that wait), and none that does anything.
    The threads that OpenBLAS and OpenMP keep for their next parallel region wait on a futex and hold nothing; a thread
    that waits in any other way, or on a system that does not tell, counts as one that works.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is in use"
    ours = [thread for thread in threading.enumerate() if isinstance(thread, LoopThread) and not thread.busy()]
    others = [t for t in threading.enumerate() if t not in ours and t is not threading.current_thread()]
    if others:
        return f"thread {others[0].name!r} runs"
    own = {threading.get_native_id(), *(thread.native_id for thread in ours)}
    deadline = time.monotonic() + _SETTLE_S
    while not all(_sleeps(task) for task in _TASKS.iterdir() if int(task.name) not in own):
        if time.monotonic() > deadline:
            return "a thread of a library is at work"
        time.sleep(_PAUSE_S)
    return ""


def fork_if_safe() -> tuple[int | None, str]:
    """As ``os.fork``; None where it is not safe, and what makes it so."""
    if isinstance(threading.current_thread(), LoopThread):
        return None, "the trial's own thread runs"
    _wait_for_passing_threads()
    with ExitStack() as held:
        for thread in threading.enumerate():
            if isinstance(thread, LoopThread):
                # Two loaders may fork at once, and each holds its own lock: neither waits for the other for ever.
                if not thread.lock.acquire(timeout=_LOCK_WAIT_S):
                    return None, f"thread {thread.name!r} is at work"
                held.callback(thread.lock.release)
        if why_not := unsafe_to_fork():
            return None, why_not
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # or a worker would write it a second time
        with warnings.catch_warnings():
            # From Python 3.12 on it warns of every other thread; which ones there are was looked at above.
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork(), ""


def _wait_for_passing_threads() -> None:
    """Those that write a checkpoint. A new interpreter, which imports everything again, takes longer than they do."""
    deadline = time.monotonic() + _PASSING_WAIT_S
    for thread in threading.enumerate():
        is_passing = getattr(thread, "ends_by_itself", False) and thread is not threading.current_thread()
        if is_passing and thread.is_alive():  # one that is being started cannot be waited for
            thread.join(max(0.0, deadline - time.monotonic()))


def _sleeps(task: Path) -> bool:
    try:
        call = (task / "syscall").read_text(encoding="ascii").split()[0]
    except FileNotFoundError:
        return not task.exists()  # it has ended, or the system does not tell
    except (OSError, IndexError):
        return False
    return call == _FUTEX.get(platform.machine())
