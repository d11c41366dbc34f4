"""Tests of changed functions in forks of one process, which has imported and collected everything.

In a fork the code of the changed function is exchanged, and the tests run at once: that costs what the tests cost. What
a function returned before, for a table, stays as it was: what runs at import, too, and is not noticed is tried again.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.fork_ends import UNHEARD, end_with
from tests.mutants.forks import ROOT, UNEXPLAINED, each, ended, forked
from tests.mutants.sampled import Sampled

CONTROL_S = 300.0
REMOVING = 4  # at a time
Told = Callable[[Sampled, int | None, float], None]


@dataclass
class ExchangeLoop:
    """A plugin of pytest that runs, in the place of what was collected, the tests of each change."""

    changes: Sequence[Sampled]
    tests_of: Callable[[Sampled], Sequence[str]]
    timeout_s: Callable[[Sampled], float]
    told: Told
    jobs: int
    until: float

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = _functions()
        gc.collect()
        gc.freeze()
        folder = _open_to_all(tempfile.mkdtemp(prefix="mutants-"))

        def begin(change: Sampled) -> int:
            chosen = [items[test] for test in tests[change.key] if test in items]
            return forked(lambda: _run(session, chosen, change, functions, f"{folder}/{change.key}"))

        tests = {change.key: self.tests_of(change) for change in self.changes}
        longest = max(self.changes, key=lambda change: len(tests[change.key]))
        if ended(begin(replace(longest, new=longest.old)), timeout_s=CONTROL_S) != 0:
            raise RuntimeError("in a fork the tests fail without any change")
        removing: deque[subprocess.Popen[bytes]] = deque()
        for change, code, took_s in each(self._until(), begin, jobs=self.jobs, timeout_s=self.timeout_s):
            self.told(change, code, took_s)
            # Databases of a server have hundreds of files each, which some disks give back slowly.
            removing.append(subprocess.Popen(["rm", "-rf", f"{folder}/{change.key}"]))
            while len(removing) > REMOVING:
                removing.popleft().wait()
        for one in removing:
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def _until(self) -> Iterator[Sampled]:
        return (change for change in self.changes if time.monotonic() < self.until)


Functions = dict[tuple[str, str, int], list[FunctionType]]


def _functions() -> Functions:
    """Every function of the project, by its file, its qualified name and its first line."""
    found: Functions = {}
    gc.unfreeze()  # the conftest of all tests hides from the collector what was collected
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(ROOT)):
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def _run(
    session: pytest.Session, items: Sequence[pytest.Item], change: Sampled, functions: Functions, folder: str
) -> int:
    """The exit code of pytest after these tests; UNHEARD where the code cannot be exchanged."""
    Path(folder).mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = _open_to_all(folder)
    if not items or not _exchange(change, functions):
        return UNHEARD
    session.config.option.maxfail = 1
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _open_to_all(folder: str) -> str:
    """A server of PostgreSQL runs as somebody else where the tests run as root."""
    Path(folder).chmod(0o755)
    return folder


def _exchange(change: Sampled, functions: Functions) -> bool:
    file = str(ROOT / change.path)
    outermost = change.function.partition(".<locals>.")[0]
    text = change.applied(Path(file).read_text(encoding="utf-8"))
    key = outermost, change.begins
    codes = [code for code in _codes(compile(text, file, "exec", dont_inherit=True)) if _key(code) == key]
    found = functions.get((file, *key), [])
    if len(codes) != 1 or not found:
        return False
    for function in found:
        if function.__code__.co_freevars != codes[0].co_freevars:
            return False
        function.__code__ = codes[0]
    return True


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def run(loop: ExchangeLoop, folders: Sequence[str]) -> int:
    """The process id of a fork that collects the folders, and runs the loop."""
    left_out = [word for name in ("randomly", "cacheprovider", "xdist") for word in ("-p", f"no:{name}")]

    def act() -> int:
        return int(pytest.main(["-qq", "-s", *UNEXPLAINED, "--no-header", *left_out, *folders], plugins=[loop]))

    pid = os.fork()
    if not pid:
        end_with(act)
    return pid
