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
_LOOKS = 3  # at threads that may be about to fall asleep
_PAUSE_S = 0.01


class LoopThread(threading.Thread):
    """The loop of a loader. Whoever holds its lock may fork beside it: it then waits, and holds nothing."""

    def __init__(self, work: Callable[[], None], lock: threading.Condition) -> None:
        super().__init__(target=work, name="data loader", daemon=True)
        self.lock = lock


def unsafe_to_fork() -> str:
    """What makes a fork unsafe; empty when nothing does.

    That is: no CUDA, no other thread that runs Python (but loops of ours), and none that does anything.
    The threads that OpenBLAS and OpenMP keep for their next parallel region wait on a futex and hold nothing; a thread
    that waits in any other way, or on a system that does not tell, counts as one that works.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is in use"
    ours = [thread for thread in threading.enumerate() if isinstance(thread, LoopThread)]
    others = [t for t in threading.enumerate() if t not in ours and t is not threading.current_thread()]
    if others:
        return f"thread {others[0].name!r} runs"
    own = {threading.get_native_id(), *(thread.native_id for thread in ours)}
    for look in range(_LOOKS):
        if all(_sleeps(task) for task in _TASKS.iterdir() if int(task.name) not in own):
            return ""
        if look < _LOOKS - 1:
            time.sleep(_PAUSE_S)
    return "a thread of a library is at work"


def fork_if_safe() -> int | None:
    """As ``os.fork``; None where it is not safe."""
    with ExitStack() as held:
        for thread in threading.enumerate():
            if isinstance(thread, LoopThread):
                held.enter_context(thread.lock)
        if unsafe_to_fork():
            return None
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # or a worker would write it a second time
        with warnings.catch_warnings():
            # From Python 3.12 on it warns of every other thread; which ones there are was looked at above.
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()


def _sleeps(task: Path) -> bool:
    try:
        call = (task / "syscall").read_text(encoding="ascii").split()[0]
    except FileNotFoundError:
        return True  # it has ended
    except (OSError, IndexError):
        return False
    return call == _FUTEX.get(platform.machine())
