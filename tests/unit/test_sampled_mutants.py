"""The sample of small changes: what people only read is left alone, and the same places are drawn from other code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import sampled
from tests.mutants.outcomes import NOTICED, UNNOTICED, Outcomes, table
from tests.mutants.sampled import Sampled, changes_of, sample

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

FILE = """
RETRIES = 3
WAIT_S = 5.0
LOOK_POLL_S = 0.1
SIZE_BYTES = 4 << 20


class Books:
    limit_s: float = 30.0
    kept: int = 0

    def room(self, wanted: int, *, of: int = 2) -> bool:
        if wanted < 0:
            return False
        return wanted < self.limit(of) and wanted < of
"""


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


def test_a_seed_draws_the_same_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some of the files: to take all of them apart takes a second each time."""
    every = sampled.files_of(ROOT)
    monkeypatch.setattr(sampled, "files_of", lambda _: every[::8])
    drawn = sample(ROOT, count=50, seed=7)

    assert drawn == sample(ROOT, count=50, seed=7)
    assert drawn != sample(ROOT, count=50, seed=8)
    assert {change.path for change in drawn} <= set(every)
    assert all(sampled.tests_for(path) for path in every)


@pytest.mark.parametrize("path", ["trials/wire/records.py", "tuner_service/service/runner.py"])
def test_the_rooms_name_their_tests(path: str) -> None:
    assert all((ROOT / test).exists() for test in sampled.tests_for(path))


def changes(text: str = FILE) -> list[Sampled]:
    return list(changes_of("some/file.py", text, 1))


def becomes(old: str) -> set[str]:
    return {change.new for change in changes() if change.old == old}


@pytest.mark.parametrize(
    ("old", "new"), [("3", "4"), ("5.0", "0"), ("4 << 20", "0"), ("30.0", "0"), ("2", "3"), ("0", "1")]
)
def test_a_named_number_is_one_place_and_a_bound_is_taken_away(old: str, new: str) -> None:
    assert becomes(old) == {new}


def test_a_pause_between_two_tries_is_left_alone() -> None:
    assert not becomes("0.1")


def test_a_place_is_known_by_its_function_and_not_by_its_line() -> None:
    moved = FILE.replace("RETRIES = 3", "RETRIES = 3\nMORE = 1\n\n")

    assert {change.key for change in changes()} <= {change.key for change in changes(moved)}
    assert {change.line for change in changes()} != {change.line for change in changes(moved)}


def test_equal_places_of_a_function_are_told_apart() -> None:
    keys = [change.key for change in changes(FILE.replace("wanted < of", "wanted < self.limit(of)"))]

    assert len(keys) == len(set(keys)) == len(changes())


def test_a_change_knows_its_function_and_where_that_begins() -> None:
    decorated = FILE.replace("    def room", "    @property\n    def room")
    (change,) = [change for change in changes(decorated) if change.old == "wanted < 0"]

    assert (change.function, decorated.splitlines()[change.begins - 1].strip()) == ("Books.room", "@property")
    assert "if wanted <= 0:" in change.applied(decorated)


def test_what_runs_when_the_file_is_imported_is_in_no_function() -> None:
    assert {change.begins for change in changes() if change.old in {"3", "30.0", "2"}} == {0}


def test_outcomes_are_kept_and_those_of_nobody_tried_again_after_any_change(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/file.py").write_text(FILE)
    noticed, survived, open_one = changes()[:3]
    before = Outcomes(tmp_path, tmp_path / "outcomes", "before")
    before.put(noticed, NOTICED, 1.0)
    before.put(survived, UNNOTICED, 1.0)

    same, later = (Outcomes(tmp_path, tmp_path / "outcomes", state) for state in ("before", "later"))

    assert [same.of(change) for change in (noticed, survived, open_one)] == [NOTICED, UNNOTICED, None]
    assert [later.of(change) for change in (noticed, survived, open_one)] == [NOTICED, None, None]
    assert "| `some` | 1 of 3 | 0 |" in table((noticed, survived, open_one), same)


def test_what_was_noticed_in_another_text_of_the_file_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some/file.py").write_text(FILE)
    outcomes = Outcomes(tmp_path, tmp_path / "outcomes", "one")
    outcomes.put(changes()[0], NOTICED, 1.0)
    (tmp_path / "some/file.py").write_text(FILE + "\n")

    assert outcomes.of(changes()[0]) is None
