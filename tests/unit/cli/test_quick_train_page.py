"""Every line of the page that maps the arguments of a quick-train call names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_line_of_the_page_is_shown_by_a_test() -> None:
    page = (ROOT / "docs" / "quick-train.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| quick train")]
    named = [re.search(r"`(test_\w+)` \|$", line) for line in lines]
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert len(lines) > 20
    assert [line for line, match in zip(lines, named, strict=True) if match is None] == []
    assert {match[1] for match in named if match} - there == set()
