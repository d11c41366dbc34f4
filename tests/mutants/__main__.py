"""``python -m tests.mutants``: breaks the named lines one after the other, and says which break no test noticed.

``--sample N`` breaks N places drawn by a seed instead, each under the tests that run its line. Each mutant lives in a
fork of this process, which has imported the libraries but nothing of the project: so a mutant costs its tests and
little else, and no file is changed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.fork_ends import UNHEARD
from tests.mutants.forks import FAILED, ROOT, MutatedFinder, each, tested
from tests.mutants.mutant import Mutant
from tests.mutants.named import NAMED
from tests.mutants.sample_run import run_sample

TIMEOUT_S = 90.0  # of the tests of one mutant, which take seconds; one that hangs twice was noticed
# Mutants run beside each other: threads that wait for one another by spinning would be all that the cores do.
ONE_THREAD_EACH = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
WARM = (
    "alembic",
    "numpy",
    "pydantic",
    "pytest",
    "scipy.stats",
    "sqlalchemy",
    "torch",
)  # no plugins of pytest among them


def mutated(mutant: Mutant) -> str:
    """The file's text with the mutant in it; ValueError where its line does not stand there exactly once."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.path}: {mutant.old.strip()!r} stands there {found} times; name it anew in named.py")
    return text.replace(mutant.old, mutant.new)


def run_named(chosen: Sequence[Mutant], jobs: int, *, passed: bool) -> int:
    """Says each mutant that nobody noticed, and each whose line stands elsewhere by now; 1 where there is one.

    ``passed``: all tests of this code have just passed, so those of the mutants are not run without one first.
    """
    begin = time.monotonic()
    chosen = list(_testable(chosen))
    untouched = [] if passed else sorted({mutant.tests for mutant in chosen})
    for tests, code, _ in each(untouched, partial(tested, finder=None), jobs=jobs, timeout_s=lambda _: TIMEOUT_S):
        if code != 0:
            print(f"without any mutant these tests fail: {' '.join(tests)}")
            return 1
    applied = list(_applied(chosen))
    wrong, again = len(chosen) - len(applied), list[tuple[Mutant, str]]()
    for pair, code in _tried(applied, jobs=jobs):
        if code in {None, UNHEARD}:
            again.append(pair)
        else:
            wrong += not _is_killed(pair[0], code)
    for (mutant, _), code in _tried(again, jobs=jobs):  # what happened once may have been the machine's
        wrong += code is not None and not _is_killed(mutant, code)
    print(f"{len(chosen) - wrong} of {len(chosen)} mutants killed in {time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


def _tried(pairs: Sequence[tuple[Mutant, str]], *, jobs: int) -> Iterator[tuple[tuple[Mutant, str], int | None]]:
    """What the tests of each ended with; None where they did not end in time, which is told."""
    for pair, code, _ in each(
        pairs,
        lambda pair: tested(pair[0].tests, MutatedFinder(pair[0].path, pair[1])),
        jobs=jobs,
        timeout_s=lambda _: TIMEOUT_S,
    ):
        if code is None:
            print(f"no end after {TIMEOUT_S:g} s: {_shown(pair[0])}")
        yield pair, code


def _is_killed(mutant: Mutant, code: int) -> bool:
    if code != FAILED:
        said = "nobody noticed" if code == 0 else f"pytest ended with {code}"
        print(f"{said}: {_shown(mutant)}")
    return code == FAILED


def _shown(mutant: Mutant) -> str:
    return f"{mutant.path}: {mutant.old.strip()!r} -> {mutant.new.strip()!r}"


def _testable(chosen: Sequence[Mutant]) -> Iterator[Mutant]:
    """Tests on a PostgreSQL server are skipped where there is none, and nobody would notice."""
    has_server = bool(list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))) or shutil.which("initdb") is not None
    for mutant in chosen:
        if has_server or "/postgresql/" not in mutant.path:
            yield mutant
        else:
            print(f"left out, for there is no PostgreSQL server here: {mutant.path}: {mutant.old.strip()!r}")


def _applied(chosen: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
    for mutant in chosen:
        try:
            yield mutant, mutated(mutant)
        except ValueError as error:
            print(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="mutants whose path contains this")
    parser.add_argument("--sample", type=int, metavar="N", help="N changes drawn from the code, not the named ones")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument(
        "--passed", action="store_true", help="all tests of this code have just passed without a mutant"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a sample; the next run goes on with it")
    parser.add_argument("--anew", action="store_true", help="of a sample: forget what earlier runs found")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ |= ONE_THREAD_EACH
    for name in WARM:
        importlib.import_module(name)
    if not arguments.sample:
        chosen = [mutant for mutant in NAMED if arguments.only in mutant.path]
        return run_named(chosen, arguments.jobs, passed=arguments.passed)
    return run_sample(
        arguments.sample,
        seed=arguments.seed,
        jobs=arguments.jobs,
        only=arguments.only,
        seconds=arguments.seconds,
        anew=arguments.anew,
    )


if __name__ == "__main__":
    sys.exit(main())
