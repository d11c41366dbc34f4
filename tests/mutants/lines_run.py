"""Which tests run which line, and how long each takes: measured by coverage with a context for each test.

What was measured is kept in ``.mutants``. While no file of the project has changed since, only tests that have are
measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutants.sampled import Sampled

TESTS_LIMIT = 1_500  # of one change; only what nobody notices costs so many
SECONDS_LIMIT = 120.0  # that they took while they were measured, which is some times as long as they take
FAILED_LIMIT = 5
MEASURED = "MUTANTS_MEASURED"  # the file that the pytest which measures writes


class LinesRun:
    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self.seconds: dict[str, float] = {}
        self._failed: set[str] = set()  # without any change: they tell nothing
        self._parts: list[tuple[str, frozenset[str]]] = []  # where what was measured is, and the test files of it

    def measure(self, tests: Iterable[str], sources: str) -> None:
        """Runs what has changed since it was measured.

        Tests that fail without any change are said, and left out; RuntimeError where they are more than FAILED_LIMIT.
        """
        self._folder.mkdir(exist_ok=True)
        wanted = {str(file): _digest(self._root / file) for file in self._test_files(tests)}
        parts = [json.loads(part.read_text()) for part in sorted(self._folder.glob("part-*.json"))]
        if any(part["sources"] != sources for part in parts):
            for old in self._folder.glob("part-*"):
                old.unlink()
            parts = []
        measured = {file: digest for part in parts for file, digest in part["files"].items()}
        if left := {file: digest for file, digest in wanted.items() if measured.get(file) != digest}:
            parts.append(self._measured(left, sources, f"part-{len(parts):03}"))
        owner = {file: place for place, part in enumerate(parts) for file in part["files"]}
        for place, part in enumerate(parts):
            files = frozenset(file for file in part["files"] if owner[file] == place)
            self._parts.append((str(self._folder / part["name"]), files))
            self._failed.update(part["failed"])
            self.seconds |= {test: s for test, s in part["seconds"].items() if owner.get(_file_of(test)) == place}

    def tests_of(self, change: Sampled) -> tuple[str, ...]:
        """Tests that run the changed line; where it runs at import only, those of its file, or of its neighbours.

        The tests of files that name the changed module come first, and of each file the quickest.
        """
        found = self._at(change.path).get(change.line, frozenset()) - {""}
        if not found:
            found = frozenset[str]().union(*self._at(change.path).values()) - {""}
        for path in self._beside(change.path) if not found else ():
            found |= frozenset[str]().union(*self._at(path).values()) - {""}
        return self._spread(found - self._failed, change.path)

    def runs_at_import(self, change: Sampled) -> bool:
        """Whether its line runs outside every test as well: then some table may have been made before."""
        return "" in self._at(change.path).get(change.line, ())

    def expected_s(self, tests: Iterable[str]) -> float:
        return sum(self.seconds.get(test, 0.0) for test in tests)

    @cache  # noqa: B019  # one of them in a process
    def _at(self, path: str) -> dict[int, frozenset[str]]:
        """By line the tests, and an empty text where it runs outside them."""
        found: dict[int, set[str]] = {}
        for data, files in self._measured_parts():
            for line, contexts in data.contexts_by_lineno(str(self._root / path)).items():
                tests = (context.rpartition("|")[0] for context in contexts)
                found.setdefault(line, set()).update(test for test in tests if not test or _file_of(test) in files)
        return {line: frozenset(tests) for line, tests in found.items()}

    def _measured_parts(self) -> Iterator[tuple[CoverageData, frozenset[str]]]:
        """Opened anew each time: one that is taken into a fork empties its file."""
        for name, files in self._parts:
            data = CoverageData(name)
            data.read()
            yield data, files
            data.close()

    def _beside(self, path: str) -> list[str]:
        """The other measured files of its folder: they use what has nothing but constants, and is run by nobody."""
        folder = (self._root / path).parent
        files = {Path(file) for data, _ in self._measured_parts() for file in data.measured_files()}
        return sorted(str(file.relative_to(self._root)) for file in files if file.parent == folder)

    def _spread(self, tests: Iterable[str], path: str) -> tuple[str, ...]:
        """As many as there is time for; two thirds of it for files that name the module, if they need so much."""
        by_file: dict[str, list[str]] = {}
        for test in sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test)):
            by_file.setdefault(_file_of(test), []).append(test)
        naming = {file: found for file, found in by_file.items() if self._names(file, path)}
        others = {file: found for file, found in by_file.items() if file not in naming}
        first = self._in_turn(naming, limit=TESTS_LIMIT * 2 // 3, limit_s=SECONDS_LIMIT * 2 / 3)
        left_s = SECONDS_LIMIT - self.expected_s(first)
        return (*first, *self._in_turn(others, limit=TESTS_LIMIT - len(first), limit_s=left_s))

    def _in_turn(self, by_file: dict[str, list[str]], *, limit: int, limit_s: float) -> tuple[str, ...]:
        """In turn from each file the quickest that is left; then file by file."""
        rounds = max(map(len, by_file.values()), default=0)
        left_s, taken = limit_s, Counter[str]()
        for turn in range(rounds):
            for file in sorted(by_file):
                if turn < len(by_file[file]) and taken.total() < limit and (left_s > 0 or not taken):
                    left_s -= self.seconds.get(by_file[file][turn], 0.0)
                    taken[file] += 1
        return tuple(test for file in sorted(by_file) for test in by_file[file][: taken[file]])

    @cache  # noqa: B019  # one of them in a process
    def _names(self, test_file: str, path: str) -> bool:
        module = path.removesuffix(".py").replace("/", ".")
        package, _, name = module.rpartition(".")
        imported = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
        return imported.search((self._root / test_file).read_text(encoding="utf-8")) is not None

    def _test_files(self, tests: Iterable[str]) -> list[Path]:
        paths = [self._root / test for test in tests]
        files = {file for path in paths for file in ([path] if path.suffix else path.rglob("test_*.py"))}
        return sorted(file.relative_to(self._root) for file in files)

    def _measured(self, files: dict[str, str], sources: str, name: str) -> dict[str, object]:
        print(f"looking for the lines that the tests of {len(files)} files run", flush=True)
        measured = self._folder / "measured.json"
        options = ["--cov=tuner_service", "--cov=trials", "--cov-context=test", "--cov-report="]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.lines_run", "--numprocesses", "auto"]
        environ = os.environ | {"COVERAGE_FILE": str(self._folder / name), MEASURED: str(measured)}
        ran = subprocess.run(
            [*command, *options, *files],
            cwd=self._root,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(measured.read_text()) if ran.returncode in {0, pytest.ExitCode.TESTS_FAILED} else None
        if found is None or len(found["failed"]) > FAILED_LIMIT:
            raise RuntimeError(f"without any change these tests fail:\n{ran.stdout[-3000:]}{ran.stderr[-1000:]}")
        for test in found["failed"]:
            print(f"fails without any change, and is left out: {test}", flush=True)
        part = {"name": name, "sources": sources, "files": files, **found}
        (self._folder / f"{name}.json").write_text(json.dumps(part))
        return part


def digest_of_sources(root: Path) -> str:
    files = sorted(file for folder in ("trials", "tuner_service") for file in (root / folder).rglob("*.py"))
    return hashlib.sha256("".join(_digest(file) for file in files).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _file_of(test: str) -> str:
    return test.partition("::")[0]


# Of the pytest that measures.
_took_s = Counter[str]()
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took_s[report.nodeid] += report.duration  # type: ignore[assignment]  # a Counter adds up seconds as well
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if MEASURED in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ[MEASURED]).write_text(json.dumps({"seconds": _took_s, "failed": sorted(_failed)}))
