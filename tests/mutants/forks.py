"""Processes in which a module of the project is another than its file says."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Generic, TypeVar

from tests.fork_ends import end_with, flush

ROOT = Path(__file__).parents[2]
FAILED, INTERRUPTED, NOT_FOUND = 1, 2, 4  # exit codes of pytest; the last two: what is changed cannot be imported
NOTICED = {FAILED, INTERRUPTED, NOT_FOUND}
LOOK_S = 0.02
MEMORY_BYTES = 8 << 30  # of one fork: a change that fills the memory is noticed before the machine notices
# Nobody reads what failed, and where pytest finds that it runs for CI, it compares two long lists for minutes.
UNEXPLAINED = ("--assert=plain", "--tb=no")
T = TypeVar("T")


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Compiles another text than the file has."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.get_filename(fullname), "exec", dont_inherit=True)


class MutatedFinder(importlib.abc.MetaPathFinder):
    def __init__(self, path: str, text: str) -> None:
        self._name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self._path, self._text = str(ROOT / path), text

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = MutatedLoader(fullname, self._path, self._text)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


@dataclass
class Fork(Generic[T]):
    what: T
    pid: int
    since: float = field(default_factory=time.monotonic)


def forked(act: Callable[[], int]) -> int:
    """The process id of a fork in a session of its own, that says nothing and ends with what ``act`` returns."""

    def act_alone() -> int:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            return act()
        except MemoryError:
            return FAILED

    flush()
    pid = os.fork()
    if not pid:
        end_with(act_alone, errors=os.dup(2))
    return pid


def tested(tests: Sequence[str], finder: MutatedFinder | None) -> int:
    """The process id of a fork that imports the project, and runs the tests."""

    def act() -> int:
        import pytest

        if finder is not None:
            sys.meta_path.insert(0, finder)
        return int(pytest.main(["-q", "-x", *UNEXPLAINED, "-p", "no:randomly", "-p", "no:cacheprovider", *tests]))

    return forked(act)


def ended(pid: int, *, timeout_s: float) -> int | None:
    """The exit code of a fork; None where it did not end in time, and was killed with all that it started."""
    pidfd = os.pidfd_open(pid)
    in_time, _, _ = select.select([pidfd], [], [], max(timeout_s, 0.0))
    os.close(pidfd)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def each(
    what: Iterable[T], begin: Callable[[T], int], *, jobs: int, timeout_s: Callable[[T], float]
) -> Iterator[tuple[T, int | None, float]]:
    """What each fork ended with (None: not in time) and how long it took, ``jobs`` at a time."""
    waiting, running = iter(what), list[Fork[T]]()
    while True:
        while len(running) < jobs and (following := next(waiting, None)) is not None:
            running.append(Fork(following, begin(following)))
        if not running:
            return
        for fork in list(running):
            took_s = time.monotonic() - fork.since
            late = took_s >= timeout_s(fork.what)
            if late or _is_over(fork.pid):
                running.remove(fork)
                yield fork.what, ended(fork.pid, timeout_s=0.0), took_s


def _is_over(pid: int) -> bool:
    pidfd = os.pidfd_open(pid)
    over, _, _ = select.select([pidfd], [], [], LOOK_S)
    os.close(pidfd)
    return bool(over)
