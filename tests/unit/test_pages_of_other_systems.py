"""Every line of the pages for those who come from elsewhere names tests that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lines_to_be_shown(page: str) -> Iterator[str]:
    """Of the tables whose last column is ``shown by``."""
    shown = False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.endswith("| shown by |"):
            shown = True
        elif not line.startswith("|"):
            shown = False
        elif shown and not line.startswith("|---"):
            yield line


def names_there() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for f in files for name in re.findall(r"^def (test_\w+)\(", f.read_text(), re.MULTILINE)}


@pytest.mark.parametrize(
    ("page", "least"), [("quick-train.md", 20), ("from-caffe2.md", 18), ("from-di-engine.md", 25), ("nni.md", 12)]
)
def test_each_line_of_the_page_is_shown_by_a_test(page: str, least: int) -> None:
    named = {
        line: re.findall(r"`(test_\w+)`", line.rstrip("| ").rpartition(" | ")[2]) for line in lines_to_be_shown(page)
    }

    assert len(named) >= least
    assert [line for line, tests in named.items() if not tests] == []
    assert {test for tests in named.values() for test in tests} - names_there() == set()
