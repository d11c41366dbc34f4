"""A sample of changes, each under the tests that run its line: most in forks that exchange a function's code, the rest,
and whatever those did not notice, in forks that import the changed file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence

from tests.mutants.exchanged import ExchangeLoop, run
from tests.mutants.forks import NOTICED as NOTICED_CODES
from tests.mutants.forks import ROOT, MutatedFinder, each, tested
from tests.mutants.lines_run import LinesRun, digest_of_sources
from tests.mutants.outcomes import BY_TIME, EXCHANGED, KILLED, NOTICED, UNNOTICED, UNRUN, Outcomes, table
from tests.mutants.sampled import Sampled, sample, tests_for

FOLDER = ROOT / ".mutants"
LEAST_KILLED = 0.9
START_S = 30.0  # of a fork that imports and collects by itself, on a busy machine
PATIENCE = 3.0  # times what the tests took while they were measured
AGAIN_TESTS = 60  # for what runs at import, too: all its tests have seen the exchanged code already
TO_BE_CONTINUED = 3


class SampleRun:
    def __init__(self, count: int, *, seed: int, jobs: int, only: str) -> None:
        self.changes = [change for change in sample(ROOT, count=count, seed=seed) if only in change.path]
        sources = digest_of_sources(ROOT)
        FOLDER.mkdir(exist_ok=True)
        self.outcomes = Outcomes(ROOT, FOLDER / f"outcomes-{seed}.jsonl", f"{sources[:16]} {_digest_of_tests()[:16]}")
        self._sources, self._jobs = sources, jobs
        self.lines = LinesRun(ROOT, FOLDER)
        self._late: set[str] = set()  # once; the second time is noticing

    @property
    def left(self) -> list[Sampled]:
        left = [change for change in self.changes if self.outcomes.of(change) is None]
        return sorted(left, key=self.outcomes.was_tried)

    def measure(self) -> None:
        self.lines.measure({test for change in self.left for test in tests_for(change.path)}, self._sources)

    def exchange(self, until: float) -> None:
        """Tries what stands in a function."""
        left = [change for change in self.left if change.begins and not self.outcomes.was_exchanged(change)]
        eligible = [change for change in left if self.lines.tests_of(change)]
        if not eligible:
            return
        loop = ExchangeLoop(
            changes=eligible,
            tests_of=self.lines.tests_of,
            timeout_s=self._timeout_s,
            told=self._exchanged,
            jobs=self._jobs,
            until=until,
        )
        files = {test.partition("::")[0] for change in eligible for test in self.lines.tests_of(change)}
        _, status = os.waitpid(run(loop, sorted(files)), 0)
        if status:
            raise RuntimeError("the tests cannot be run in forks of one process; what was said before is the reason")
        self.outcomes.read()

    def import_changed(self, until: float) -> None:
        """Tries everything that is left."""
        waiting = []
        for change in self.left:
            if self.lines.tests_of(change):
                waiting.append(change)
            else:
                self.outcomes.put(change, UNRUN, 0.0)
        while waiting and time.monotonic() < until:
            waiting, now = [], _until(waiting, until)
            for change, code, took_s in each(now, self._begin, jobs=self._jobs, timeout_s=self._timeout_s):
                if code is None and change.key not in self._late:
                    self._late.add(change.key)
                    waiting.append(change)
                else:
                    self._put(change, code, took_s)

    def _begin(self, change: Sampled) -> int:
        text = change.applied((ROOT / change.path).read_text(encoding="utf-8"))
        tests = self.lines.tests_of(change)
        if self.outcomes.was_exchanged(change):
            tests = tests[:AGAIN_TESTS]
        return tested(tests, MutatedFinder(change.path, text))

    def _exchanged(self, change: Sampled, code: int | None, took_s: float) -> None:
        if code in NOTICED_CODES:
            self._put(change, code, took_s)
        elif code == 0:
            self.outcomes.put(change, EXCHANGED if self.lines.runs_at_import(change) else UNNOTICED, took_s)

    def _put(self, change: Sampled, code: int | None, took_s: float) -> None:
        outcome = BY_TIME if code is None else NOTICED if code in NOTICED_CODES else UNNOTICED
        self.outcomes.put(change, outcome if code in {*NOTICED_CODES, None, 0} else f"pytest ended with {code}", took_s)
        _say_progress(len(self.changes), len(self.left))

    def _timeout_s(self, change: Sampled) -> float:
        return START_S + PATIENCE * self.lines.expected_s(self.lines.tests_of(change))


def run_sample(count: int, *, seed: int, jobs: int, only: str, seconds: float, anew: bool) -> int:
    """Says the portion that was noticed, by package, and every change that was not."""
    if anew:
        for file in FOLDER.glob("*"):
            file.unlink()
    begin = time.monotonic()
    tried = SampleRun(count, seed=seed, jobs=jobs, only=only)
    known = len(tried.changes) - len(tried.left)
    if tried.left:
        tried.measure()
        tried.exchange(begin + seconds)
        tried.import_changed(begin + seconds)
    print(table(tried.changes, tried.outcomes))
    for change in sorted(tried.changes, key=lambda change: (change.path, change.line)):
        if (outcome := tried.outcomes.of(change)) not in {*KILLED, None}:
            print(f"{outcome}: {change.path}:{change.line}: {change.function}: {change.old!r} -> {change.new!r}")
    killed = sum(tried.outcomes.of(change) in KILLED for change in tried.changes)
    took = f"{time.monotonic() - begin:.0f} s, {known} known from before (--anew forgets them)"
    print(f"{killed} of {len(tried.changes)} killed ({killed / max(len(tried.changes), 1):.1%}), seed {seed}, {took}")
    if tried.left:
        print(f"{len(tried.left)} are left: the next run goes on with them")
        return TO_BE_CONTINUED
    return 0 if killed >= LEAST_KILLED * len(tried.changes) else 1


def _until(changes: Sequence[Sampled], until: float) -> Iterator[Sampled]:
    return (change for change in changes if time.monotonic() < until)


def _digest_of_tests() -> str:
    files = sorted((ROOT / "tests").rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _say_progress(count: int, left: int) -> None:
    if left % 25 == 0:
        print(f"{count - left} of {count} tried", file=sys.stderr, flush=True)
