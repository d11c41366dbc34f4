"""Results as people read them."""

from __future__ import annotations

from benchmarks.writing import table


def test_rows_that_lack_a_column_stay_in_one_table_and_rows_of_other_columns_begin_another() -> None:
    rows = [{"what": "loop", "rate": 120.0}, {"what": "ours", "rate": 0.5, "gap": 3}, {"name": "state", "bytes": 7}]

    assert table(rows) == (
        "| what | rate | gap |\n|---|---|---|\n| loop | 120 |  |\n| ours | 0.5 | 3 |\n"
        "\n"
        "| name | bytes |\n|---|---|\n| state | 7 |\n"
    )
