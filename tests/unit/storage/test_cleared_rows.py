"""Rows leave some at a time: each step looks at its own rows and no others."""

from __future__ import annotations

import sqlite3

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from tuner_service.archive_ports import MovedMetrics
from tuner_service.storage import tables
from tuner_service.storage.moved_rows import cleared


def test_a_step_is_bounded_at_both_ends_by_the_key() -> None:
    moved = MovedMetrics(experiment_id="x", first=1, last=2_000, upto=28_000)
    statement = cleared(moved, after=(100, 0, 0), last=(100, 1, 500))
    text = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    database = sqlite3.connect(":memory:")
    for made in (CreateTable(tables.metrics), *map(CreateIndex, tables.metrics.indexes)):
        database.execute(str(made.compile(dialect=sqlite.dialect())))
    ((*_, plan),) = database.execute(f"EXPLAIN QUERY PLAN {text}")
    database.close()

    key = "(number,attempt,sequence)"
    assert f"PRIMARY KEY (experiment_id=? AND {key}>(?,?,?) AND {key}<(?,?,?))" in plan
