"""A fork of this process that does a piece of work."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.fork_ends import end_with, flush

ENDED_TIMEOUT_S = 20.0


class Child:
    """A fork with a session of its own, so that everything it starts is known; its output goes to a file."""

    def __init__(self, work: Callable[[], object], output: Path) -> None:

        def act() -> int:
            os.setsid()
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            work()
            return 0

        flush()
        self.code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            end_with(act, failed=1)
        self._pidfd = os.pidfd_open(self.pid)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        if self.code is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return False
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._pidfd)
        return True

    def end(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(ENDED_TIMEOUT_S)

    def left(self) -> list[int]:
        """Processes of its session."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid and fields[0] not in "ZX":
                    found.append(int(path.parent.name))
        return found
