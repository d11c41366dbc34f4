"""The named mutants can be run: their lines stand where they are looked for, and so do the tests that notice them."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.named import NAMED

ROOT = Path(__file__).parents[2]


def test_the_line_of_each_named_mutant_stands_in_its_file_once() -> None:
    """A line that moved is seen here at once, not after the whole run of them."""
    counts = {
        (mutant.path, mutant.old.strip()): (ROOT / mutant.path).read_text(encoding="utf-8").count(mutant.old)
        for mutant in NAMED
    }

    assert {where: count for where, count in counts.items() if count != 1} == {}


def test_the_tests_of_each_named_mutant_are_there() -> None:
    named = {test.partition("::")[0] for mutant in NAMED for test in mutant.tests}

    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []
