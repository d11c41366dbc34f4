"""docs/faults.md promises only what a test shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_of_the_faults_page_names_tests_that_exist() -> None:
    existing = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    lines = (ROOT / "docs" / "faults.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| shown by |")]
    missing = {}
    for row in rows:
        fault, _, shown_by = row.strip("| ").split(" | ")
        named = re.findall(r"`(test_\w+)`", shown_by)
        missing[fault] = [name for name in named if name not in existing] if named else ["a test"]

    assert len(rows) > 25
    assert {fault: names for fault, names in missing.items() if names} == {}
