"""Results that are older than the code they measure are marked as such."""

from __future__ import annotations

import json

import pytest

from benchmarks import age
from benchmarks.writing import RESULTS


@pytest.mark.parametrize(
    ("commit", "commits", "said"),
    [("abc", 0, "of this code"), ("abc", 3, "older than the code** by 3"), ("", None, "is not known")],
)
def test_the_verdict_says_how_old_a_result_is(commit: str, commits: int | None, said: str) -> None:
    assert said in age.Age(name="dispatch", date="2026-01-01", commit=commit, commits=commits).verdict


def test_what_a_result_measures_is_there() -> None:
    for paths in age.MEASURED.values():
        assert all((age.ROOT / path).exists() for path in paths), paths


def test_the_page_of_results_has_the_date_and_the_commit_of_every_result() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    for file in sorted(RESULTS.glob("*.json")):
        machine = json.loads(file.read_text(encoding="utf-8")).get("machine", {})
        row = next(line for line in page.splitlines() if line.startswith(f"| [{file.stem}]("))
        assert f"| {machine.get('date', '')} | {machine.get('commit') or '–'} |" in row, "run python -m benchmarks.age"
