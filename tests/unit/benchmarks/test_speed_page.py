"""The page of what is paid for speed names every trick that is measured, and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.speed.__main__ import TRICKS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/speed.md").read_text(encoding="utf-8")


def test_every_trick_has_a_row_and_every_row_is_measured() -> None:
    named = re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE)

    assert sorted(named) == sorted(trick.name for trick in TRICKS)


def test_every_row_names_where_the_trick_stands() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]

    assert all("](../" in row.split("|")[3] for row in rows)
