"""Typed columns of a parquet file."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from tuner_service.cli.verbs.export import flat_trial
from tuner_service.exports.parquet import METRIC_KINDS, TRIAL_KINDS, find_kinds, write_table


def a_row(**fields: Any) -> dict[str, Any]:
    return dict.fromkeys(TRIAL_KINDS) | fields


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "int"),
        ([1, 0.5], "number"),
        ([True, False], "bool"),
        (["a", None], "text"),
        ([1, "a"], "json"),
        ([True, 1], "json"),
        ([[1]], "json"),
        ([2**70], "json"),
        ([None], "text"),
    ],
)
def test_a_column_has_the_type_that_all_its_values_have(values: list[Any], kind: str) -> None:
    rows = [a_row(**{"parameters.x": value}) for value in values]

    assert find_kinds(rows, TRIAL_KINDS)["parameters.x"] == kind


def test_a_trial_becomes_one_flat_row() -> None:
    view = {"number": 1, "parameters": {"layer": {"_name": "conv", "k": 3}}, "final": {"loss": "NaN"}, "last": None}

    assert flat_trial(view) == {
        "number": 1,
        "parameters.layer._name": "conv",
        "parameters.layer.k": 3,
        "final.loss": "NaN",
        "last.step": None,
        "last.metrics": None,
    }


def test_rows_written_are_the_rows_read() -> None:
    import pyarrow.parquet

    rows = [
        a_row(number=1, value="NaN", created_at="2025-06-15T15:06:40.000Z", **{"parameters.x": 1, "final.loss": 2}),
        a_row(number=2, value=0.5, **{"parameters.x": "a", "final.loss": "Infinity", "last.metrics": {"a": 1}}),
    ]
    stream = io.BytesIO()
    write_table(lambda: rows, stream, kinds=None)

    table = pyarrow.parquet.read_table(io.BytesIO(stream.getvalue()))

    first, second = table.to_pylist()
    assert (first["number"], first["parameters.x"], first["final.loss"], first["created_at"].year) == (1, "1", 2, 2025)
    assert (second["parameters.x"], second["final.loss"], second["last.metrics"]) == ('"a"', math.inf, '{"a": 1}')
    assert math.isnan(first["value"])
    assert str(table.schema.field("created_at").type) == "timestamp[ms, tz=UTC]"


def test_no_rows_make_a_file_with_columns() -> None:
    import pyarrow.parquet

    stream = io.BytesIO()
    write_table(list, stream, kinds=METRIC_KINDS)

    table = pyarrow.parquet.read_table(io.BytesIO(stream.getvalue()))

    assert (table.num_rows, table.column_names) == (0, list(METRIC_KINDS))
