"""Which tests run which line: measured once, by coverage with a context for each test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from coverage import CoverageData

from tests.mutants.sampled import Sampled

TESTS_LIMIT = 300  # of one change, from as many files as there are


class LinesRun:
    def __init__(self, root: Path, data: CoverageData) -> None:
        self._root, self._data = root, data

    def tests_of(self, change: Sampled) -> tuple[str, ...]:
        """Tests that run the changed line; where it runs at import only, those of its file, or of its neighbours."""
        file = str(self._root / change.path)
        lines = self._data.contexts_by_lineno(file)
        found = {_test(context) for context in lines.get(change.line, ()) if context}
        for path in (file, *self._beside(file)):
            if found:
                break
            lines = self._data.contexts_by_lineno(path)
            found = {_test(context) for contexts in lines.values() for context in contexts if context}
        return _spread(sorted(found), TESTS_LIMIT)

    def _beside(self, file: str) -> list[str]:
        """The other measured files of its folder: they use what has nothing but constants, and is run by nobody."""
        folder = Path(file).parent
        return sorted(path for path in self._data.measured_files() if Path(path).parent == folder)


def lines_run(root: Path, tests: Iterable[str]) -> LinesRun:
    """Runs the tests; RuntimeError where one of them fails without any change."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "coverage"))
        command = [sys.executable, "-m", "pytest", "--numprocesses", "auto", *sorted(set(tests))]
        options = ["--cov=tuner_service", "--cov=trials", "--cov-context=test", "--cov-report="]
        environ = os.environ | {"COVERAGE_FILE": file, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run([*command, *options], cwd=root, env=environ, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"without any change these tests fail:\n{ran.stdout[-3000:]}{ran.stderr[-1000:]}")
        data = CoverageData(file)
        data.read()
        kept = CoverageData(no_disk=True)
        kept.update(data)
    return LinesRun(root, kept)


def _test(context: str) -> str:
    return context.rpartition("|")[0] or context


def _spread(tests: list[str], limit: int) -> tuple[str, ...]:
    """At most ``limit`` of them, in turn from each file."""
    by_file: dict[str, list[str]] = {}
    for test in tests:
        by_file.setdefault(test.partition("::")[0], []).append(test)
    rounds = max(map(len, by_file.values()), default=0)
    turns = [found[turn] for turn in range(rounds) for found in by_file.values() if turn < len(found)]
    return tuple(turns[:limit])
