"""The sample of small changes: what people only read is left alone, and a seed draws the same again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import sampled
from tests.mutants.sampled import changes_of, sample

ROOT = Path(__file__).resolve().parents[2]
CODE = '''"""About é."""
import logging
__all__ = ["f"]

def f(x: int = 3) -> str | None:
    """What."""
    logging.info("x", 1)
    if not x and x < 2:
        raise ValueError(f"{x + 1}")
    g("é", x == 4)
    print("many" if x else f"{x}")
    sys.stderr.write("é")
    return "é" if x else None

def h() -> bool | str:
    if h.many == 1:
        return f"{h}"
    return False

Kinds = int | str
Either = int | str | Path
'''


def test_each_expression_is_changed_once_and_texts_are_left_alone() -> None:
    found = {(change.line, change.old, change.new) for change in changes_of("a.py", CODE)}

    assert found == {
        (5, "3", "4"),
        (8, "not x and x < 2", "(not x or x < 2)"),
        (8, "not x", "(x)"),
        (8, "x < 2", "x <= 2"),
        (8, "2", "3"),
        (10, 'g("é", x == 4)', "pass"),
        (10, "x == 4", "x != 4"),
        (10, "4", "5"),
        (11, 'print("many" if x else f"{x}")', "pass"),
        (13, 'return "é" if x else None', "return None"),
        (13, '"é" if x else None', "(None if x else 'é')"),
        (16, "h.many == 1", "h.many != 1"),
        (16, "1", "2"),
        (18, "False", "True"),
    }


def test_a_change_stands_where_the_old_text_stood() -> None:
    for change in changes_of("a.py", CODE):
        assert ast.parse(change.applied(CODE))
        assert len(change.applied(CODE)) == len(CODE) - len(change.old) + len(change.new)


def test_a_seed_draws_the_same_changes_again() -> None:
    drawn = sample(ROOT, count=50, seed=7)

    assert drawn == sample(ROOT, count=50, seed=7)
    assert drawn != sample(ROOT, count=50, seed=8)
    assert all(sampled.tests_for(change.path) for change in drawn)


@pytest.mark.parametrize("path", ["trials/wire/records.py", "tuner_service/service/runner.py"])
def test_the_rooms_name_their_tests(path: str) -> None:
    assert all((ROOT / test).exists() for test in sampled.tests_for(path))
