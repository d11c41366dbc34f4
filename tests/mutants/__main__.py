"""``python -m tests.mutants``: breaks the named lines one after the other, and says which break no test noticed.

Each mutant lives in a fork of this process, which has imported the libraries but nothing of the project: so
a mutant costs its tests and little else, and no file is changed.
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

from tests.mutants.named import NAMED, Mutant

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0  # of the tests of one mutant; one that hangs was noticed
TESTS_FAILED = 1  # exit codes of pytest
WARM = ("numpy", "sqlalchemy", "torch")


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Compiles another text than the file has."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.get_filename(fullname), "exec", dont_inherit=True)


class MutatedFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant, text: str) -> None:
        self._name = mutant.path.removesuffix(".py").replace("/", ".")
        self._path, self._text = str(ROOT / mutant.path), text

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


def outcome(tests: Sequence[str], finder: MutatedFinder | None) -> int | None:
    """The exit code of pytest in a fork; None where it did not end in time."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _run(tests, finder)
    pidfd = os.pidfd_open(pid)
    ended, _, _ = select.select([pidfd], [], [], TIMEOUT_S)
    os.close(pidfd)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="mutants whose path contains this")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    for name in WARM:
        importlib.import_module(name)
    chosen = [mutant for mutant in NAMED if arguments.only in mutant.path]
    begun, wrong = time.monotonic(), 0
    for tests in sorted({mutant.tests for mutant in chosen}):
        if outcome(tests, None) != 0:
            print(f"without any mutant these tests fail: {' '.join(tests)}")
            return 1
    for mutant in chosen:
        try:
            finder = MutatedFinder(mutant, mutated(mutant))
        except ValueError as error:
            print(error)
            wrong += 1
            continue
        code = outcome(mutant.tests, finder)
        if code not in {TESTS_FAILED, None}:
            said = "nobody noticed" if code == 0 else f"pytest ended with {code}"
            print(f"{said}: {mutant.path}: {mutant.old.strip()!r} -> {mutant.new.strip()!r}")
            wrong += 1
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants killed in {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
