"""``python -m tests.mutants``: breaks the named lines one after the other, and says which break no test noticed.

``--sample N`` breaks N places drawn by a seed instead, each under the tests that run its line. Each mutant lives in a
fork of this process, which has imported the libraries but nothing of the project: so a mutant costs its tests and
little else, and no file is changed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutants.lines_run import lines_run
from tests.mutants.named import NAMED, Mutant
from tests.mutants.sampled import Sampled, sample, tests_for

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0  # of the tests of one mutant; one that hangs was noticed
TESTS_FAILED = (
    1  # exit codes of pytest; the next two where a changed module, or what is made from it, cannot be imported
)
INTERRUPTED, NOT_FOUND = 2, 4
RUNNING = -1_000  # no exit code
SAMPLED_TIMEOUT_S = 90.0  # of the tests of one sampled change
LEAST_KILLED = 0.9  # of a sample
WARM = ("numpy", "sqlalchemy", "torch")


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


def mutated(mutant: Mutant) -> str:
    """The file's text with the mutant in it; ValueError where its line does not stand there exactly once."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.path}: {mutant.old.strip()!r} stands there {found} times; name it anew in named.py")
    return text.replace(mutant.old, mutant.new)


def begun(tests: Sequence[str], finder: MutatedFinder | None) -> int:
    """The process id of a fork that runs the tests in a session of its own."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _run(tests, finder)
    return pid


def ended(pid: int, *, timeout_s: float) -> int | None:
    """The exit code of a fork; None where it did not end in time, and was killed with all that it started."""
    pidfd = os.pidfd_open(pid)
    in_time, _, _ = select.select([pidfd], [], [], timeout_s)
    os.close(pidfd)
    if not in_time:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if in_time else None


def _run(tests: Sequence[str], finder: MutatedFinder | None) -> None:
    import pytest

    code = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if finder is not None:
            sys.meta_path.insert(0, finder)
        code = int(pytest.main(["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def run_named(chosen: Sequence[Mutant], jobs: int) -> int:
    """Says each mutant that nobody noticed, and each whose line stands elsewhere by now; 1 where there is one."""
    begin = time.monotonic()
    for tests in sorted({mutant.tests for mutant in chosen}):
        if ended(begun(tests, None), timeout_s=TIMEOUT_S) != 0:
            print(f"without any mutant these tests fail: {' '.join(tests)}")
            return 1
    waiting, wrong = list(chosen), 0
    running: dict[int, tuple[Mutant, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            try:
                finder = MutatedFinder(mutant.path, mutated(mutant))
            except ValueError as error:
                print(error)
                wrong += 1
                continue
            running[begun(mutant.tests, finder)] = (mutant, time.monotonic())
        for pid, (mutant, since) in list(running.items()):
            code = _now(pid, since, TIMEOUT_S)
            if code == RUNNING:
                continue
            del running[pid]
            if code not in {TESTS_FAILED, None}:
                said = "nobody noticed" if code == 0 else f"pytest ended with {code}"
                print(f"{said}: {mutant.path}: {mutant.old.strip()!r} -> {mutant.new.strip()!r}")
                wrong += 1
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants killed in {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


def run_sample(count: int, seed: int, jobs: int, only: str) -> int:
    """The portion that was noticed, and every change that was not, on standard output."""
    changes = [change for change in sample(ROOT, count=count, seed=seed) if only in change.path]
    print(f"looking for the tests that run each line of {len({change.path for change in changes})} files", flush=True)
    runs = lines_run(ROOT, {test for change in changes for test in tests_for(change.path)})
    begin, survived = time.monotonic(), []
    endless: set[Sampled] = set()  # once; the second time is noticing
    waiting = list(changes)
    running: dict[int, tuple[Sampled, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            change = waiting.pop(0)
            tests = runs.tests_of(change)
            if not tests:
                survived.append((change, "no test runs it"))
                continue
            text = change.applied((ROOT / change.path).read_text(encoding="utf-8"))
            running[begun(tests, MutatedFinder(change.path, text))] = (change, time.monotonic())
        for pid, (change, since) in list(running.items()):
            code = _now(pid, since, SAMPLED_TIMEOUT_S)
            if code != RUNNING:
                del running[pid]
                if code is None and change not in endless:  # what else the machine does may be the reason
                    endless.add(change)
                    waiting.append(change)
                    continue
                if code is not None:
                    endless.discard(change)
                if code not in {TESTS_FAILED, None, INTERRUPTED, NOT_FOUND}:
                    survived.append((change, "nobody noticed" if code == 0 else f"pytest ended with {code}"))
                _say_progress(len(changes), len(waiting) + len(running), len(survived))
    for change, why in sorted(survived, key=lambda found: (found[0].path, found[0].line)):
        print(f"{why}: {change.path}:{change.line}: {change.old!r} -> {change.new!r}")
    killed = len(changes) - len(survived)
    portion, took_s = killed / max(len(changes), 1), time.monotonic() - begin
    how = f"{portion:.1%}, {len(endless)} by their time, twice"
    print(f"{killed} of {len(changes)} killed ({how}) in {took_s:.0f} s, seed {seed}")
    return 0 if killed >= LEAST_KILLED * len(changes) else 1


def _say_progress(count: int, remaining: int, survived: int) -> None:
    done = count - remaining
    if done % 25 == 0:
        print(f"{done} of {count} tried, {survived} noticed by nobody", file=sys.stderr, flush=True)


def _now(pid: int, since: float, timeout_s: float) -> int | None:
    """The exit code of a fork; RUNNING while it runs; None where it took too long, and was killed."""
    remaining = timeout_s - (time.monotonic() - since)
    pidfd = os.pidfd_open(pid)
    is_over, _, _ = select.select([pidfd], [], [], 0.02)
    os.close(pidfd)
    return RUNNING if not is_over and remaining > 0 else ended(pid, timeout_s=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="mutants whose path contains this")
    parser.add_argument("--sample", type=int, metavar="N", help="N changes drawn from the code, not the named ones")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    for name in WARM:
        importlib.import_module(name)
    if arguments.sample:
        return run_sample(arguments.sample, arguments.seed, arguments.jobs, arguments.only)
    return run_named([mutant for mutant in NAMED if arguments.only in mutant.path], arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
