"""SECURITY.md claims nothing without a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_claim_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised = page.partition("## What is promised")[2].partition("## What is not promised")[0]
    named = set(re.findall(r"`(test_\w+)`", promised))
    files = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    there = {name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, flags=re.MULTILINE)}

    assert named - there == set()
    assert len(named) >= 20
    for claim in re.split(r"\n(?=- |\*\*)", promised):
        is_heading = re.fullmatch(r"\s*\*\*[^*]*\*\*\s*", claim) or not claim.strip()
        assert is_heading or "`test_" in claim, claim
