"""No row is put back from an archive that is not the one that was written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tuner_service.exports import archive

ROWS = [(1, 1, step, step, step, '{"loss":0.5}', True, 0.5, 1.0) for step in (1, 2, 3)]


def written(file: Path, rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The order by which the file is read, as a service that wrote ROWS keeps it."""
    schema = archive._schema("e")
    columns = [pyarrow.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), file)
    made = archive.Sum()
    made.add(ROWS)
    return {"file": str(file), "rows": made.rows, "digest": made.digest, "after": [0, 0, 0]}


def test_an_archive_is_read_from_where_the_reader_is(tmp_path: Path) -> None:
    answers = io.StringIO()
    archive.read(written(tmp_path / "a.parquet", ROWS) | {"after": [1, 1, 2]}, answers)
    assert answers.getvalue().count("loss") == 1


@pytest.mark.parametrize(
    "rows",
    [ROWS[:2], [ROWS[0], ROWS[2], ROWS[1]], [*ROWS[:2], (*ROWS[2][:7], 0.25, 1.0)]],
    ids=["a row is missing", "in another order", "another value"],
)
def test_of_an_archive_with_other_rows_nothing_is_read(tmp_path: Path, rows: list[tuple[Any, ...]]) -> None:
    answers = io.StringIO()
    with pytest.raises(ValueError, match="the archive is damaged"):
        archive.read(written(tmp_path / "a.parquet", rows), answers)
    assert answers.getvalue() == ""
