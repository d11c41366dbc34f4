"""Results as people read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import writing
from benchmarks.writing import spread, table, verdict


def test_rows_that_lack_a_column_stay_in_one_table_and_rows_of_other_columns_begin_another() -> None:
    rows = [{"what": "loop", "rate": 120.0}, {"what": "ours", "rate": 0.5, "gap": 3}, {"name": "state", "bytes": 7}]

    assert table(rows) == (
        "| what | rate | gap |\n|---|---|---|\n| loop | 120 |  |\n| ours | 0.5 | 3 |\n"
        "\n"
        "| name | bytes |\n|---|---|\n| state | 7 |\n"
    )


def test_a_result_says_how_many_rounds_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RESULTS", tmp_path)
    monkeypatch.setattr(writing, "at_end", dict)

    writing.save("few", command="run", machine={}, rows=[{"a": 1}], rounds=[{"a": 1}, {"a": 2}], of_rounds=2)
    writing.save("unsaid", command="run", machine={}, rows=[{"a": 1}])

    assert "rounds of each row: 2\n" in (tmp_path / "few.md").read_text()
    assert json.loads((tmp_path / "few.json").read_text())["of_rounds"] == 2
    assert "rounds" not in (tmp_path / "unsaid.md").read_text() + (tmp_path / "unsaid.json").read_text()


def test_a_spread_begins_with_the_median() -> None:
    assert [spread([3.0, 1.0, 2.04]), spread([1.0]), spread([])] == ["2.0 (1.0–3.0)", "1.0", ""]
    assert spread([1234.0, 5.0], 0) == "620 (5–1,234)"


@pytest.mark.parametrize(
    ("measured", "target", "said"),
    [
        (5.0, "5", "reached"),
        (5.1, "≤ 5", "NOT reached"),
        (7_999, "≥ 8,000", "NOT reached"),
        (8_000, "≥ 8000", "reached"),
        (1.0, "", ""),
    ],
)
def test_a_row_says_whether_its_target_is_reached(measured: float, target: str, said: str) -> None:
    assert verdict(measured, target) == said
