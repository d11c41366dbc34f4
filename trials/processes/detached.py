"""Processes that outlive the one that starts them: started apart from it, watched from an event loop, adopted later."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trials.processes.identity import read_stat


def start_detached(
    command: Sequence[str],
    *,
    log: Path,
    folder: str | Path = "/",
    environment: Mapping[str, str] | None = None,
    passed: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, its output at the end of ``log``.

    The end of a terminal or of this process is no reason for it to end, and no folder is kept from being unmounted
    unless ``folder`` says so. OSError where it cannot be started.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            pass_fds=passed,
            start_new_session=True,
        )


class EndWatch:
    """Tells once when a process ends, children and others alike. Lives in one event loop.

    A pidfd names the very process that had the number when it was opened, whoever has the number later.
    """

    def __init__(self) -> None:
        self._descriptors: dict[str, set[int]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._descriptors

    def add(self, name: str, pid: int, on_end: Callable[[], object], *, start_time: int | None = None) -> bool:
        """Call ``on_end`` when it has ended; it is not watched any more then. False where there is no such process.

        Several may have one ``name``: a process that is just ending, and the one that takes its place. Each is told.
        ``start_time`` of one that is adopted by its record: between a look at it and this call its number may have
        become another process's. A child that was not reaped needs none.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        found = None if start_time is None else read_stat(pid)
        if found is not None and found.start_time != start_time:
            os.close(descriptor)
            return False
        self._descriptors.setdefault(name, set()).add(descriptor)

        def ended() -> None:
            self._forget(name, descriptor)
            on_end()

        asyncio.get_running_loop().add_reader(descriptor, ended)
        return True

    def remove(self, name: str) -> None:
        """Nothing is told of it any more; it may be unknown."""
        for descriptor in list(self._descriptors.get(name, ())):
            self._forget(name, descriptor)

    def _forget(self, name: str, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        watched = self._descriptors[name]
        watched.discard(descriptor)
        if not watched:
            del self._descriptors[name]

    def close(self) -> None:
        """Nothing is told of any."""
        for name in list(self._descriptors):
            self.remove(name)
