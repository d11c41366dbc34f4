"""The runner of tests that start processes: every file once, in an order that can be repeated, and all counted."""

from __future__ import annotations

import json

import pytest

from tests.parts import FILES_LIMIT, KNOWN, PART_S, counts_of, failed_of, parts_of, seconds_of, seconds_of_files


@pytest.mark.parametrize("count", [0, 1, 4, 5, 40])
def test_each_file_is_in_one_part(count: int) -> None:
    files = [f"test_{number}.py" for number in range(count)]
    known = dict.fromkeys(files, 1.0)

    parts = parts_of(files, known, seed=3)

    assert sorted(file for part in parts for file in part) == sorted(files)
    assert all(0 < len(part) <= FILES_LIMIT for part in parts)


def test_a_seed_draws_the_same_parts_whatever_the_order_of_the_folder() -> None:
    files = [f"test_{number}.py" for number in range(20)]
    known = dict.fromkeys(files, 4.0)

    assert parts_of(files, known, seed=3) == parts_of(files[::-1], known, seed=3)
    assert parts_of(files, known, seed=3) != parts_of(files, known, seed=4)


def test_long_files_begin_first_and_alone_and_unknown_ones_are_taken_for_long() -> None:
    known = {"short": 1.0, "brief": 2.0, "long": PART_S + 1, "longest": PART_S + 30}

    longest, long, unknown, short = parts_of([*known, "unknown"], known, seed=3)

    assert (longest, long, unknown) == (("longest",), ("long",), ("unknown",))
    assert sorted(short) == ["brief", "short"]


def test_what_is_known_of_files_is_seconds() -> None:
    known = json.loads(KNOWN.read_text(encoding="utf-8"))

    assert known
    assert all(file.startswith("tests/") and seconds >= 0 for file, seconds in known.items())


def test_what_a_file_takes_is_the_sum_of_its_tests() -> None:
    found = {"tests/a.py::test_one[x y]": 1.5, "tests/a.py::test_two": 2.0, "tests/b.py::test_one": 1.0}

    assert seconds_of_files(found) == {"tests/a.py": 3.5, "tests/b.py": 1.0}


def test_the_last_line_of_pytest_is_counted_and_no_other() -> None:
    said = "3 failed in the first run\n..F\n=== 1 failed, 12 passed, 2 skipped, 2 errors in 3.1s (0:00:03) ==="

    assert counts_of(said) == {"failed": 1, "passed": 12, "skipped": 2, "error": 2}
    assert counts_of("Segmentation fault") == {}


def test_a_test_takes_as_long_as_its_fixtures_and_itself() -> None:
    one = "1.50s setup    tests/a.py::test_one[x y]\n0.25s call     tests/a.py::test_one[x y]\n"
    said = f"{one}2.00s call     tests/b.py::test_two\n"

    assert seconds_of(said) == {"tests/a.py::test_one[x y]": 1.75, "tests/b.py::test_two": 2.0}


def test_failed_tests_are_known_by_name_so_that_each_can_run_alone() -> None:
    one, two = "FAILED tests/a.py::test_one[x y] - assert 3 == 1\n", "ERROR tests/b.py::test_two\n"

    said = f"{one}{two}{one}=== 1 failed, 1 error in 3.1s ==="

    assert failed_of(said) == ["tests/a.py::test_one[x y]", "tests/b.py::test_two"]


def test_nothing_is_run_again_for_a_pytest_that_did_not_come_to_its_end() -> None:
    assert failed_of("FAILED tests/a.py::test_one - assert 3 == 1\nSegmentation fault") is None
