"""What a run on a GPU leaves: a row for each test, and one for each figure."""

from __future__ import annotations

from benchmarks.gpu.__main__ import WAYS, fed_rows, rows_of

REPORT = """<testsuites><testsuite>
<testcase name="test_a" time="1.5"><system-out>--- Captured Out ---
{"forked_s": 0.2, "spawned_s": 2.5}
</system-out></testcase>
<testcase name="test_b" time="0.1"><failure message="no"/></testcase>
<testcase name="test_c" time="0"><skipped message="none"/></testcase>
</testsuite></testsuites>"""


def test_every_test_and_every_figure_has_its_row() -> None:
    assert list(rows_of(REPORT)) == [
        {"test": "test_a", "outcome": "passed", "seconds": 1.5},
        {"test": "test_b", "outcome": "failed", "seconds": 0.1},
        {"test": "test_c", "outcome": "skipped", "seconds": 0.0},
        {"measured by": "test_a", "figure": "forked_s", "value": 0.2},
        {"measured by": "test_a", "figure": "spawned_s", "value": 2.5},
    ]


def test_the_share_of_computing_alone_is_that_of_each_round() -> None:
    rates = {0: 100.0, 1: 10.0}
    found = [
        {
            "round": number,
            "workload": "images",
            "way": way,
            "batches_s": rate if way == WAYS[0] else rate / 2,
            "loop_cpu": 1,
        }
        for number, rate in rates.items()
        for way in WAYS
    ]

    rows = fed_rows(found)

    assert [row["way"] for row in rows] == list(WAYS)
    assert [row["of computing alone"] for row in rows] == [1.0] + [0.5] * (len(WAYS) - 1)
    assert rows[1]["batches_s"] == "27.5 (5.0–50.0)"
