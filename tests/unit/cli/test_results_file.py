"""Results in a file: every form that is read, and what is wrong with others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.files.results_file import nested, read_results
from tuner_service.cli.output.exit_codes import CommandError
from tuner_service.cli.typed import value_of
from tuner_service.service.export import PLAIN_FIELDS, cell, csv_text, flat_trial, flattened, json_lines
from tuner_service.service.views import plain


def read(tmp_path: Path, name: str, text: str) -> tuple[list[dict[str, Any]], int]:
    path = tmp_path / name
    path.write_text(text, newline="")
    return read_results(str(path))


def test_what_a_spreadsheet_and_a_table_of_pandas_write_is_read(tmp_path: Path) -> None:
    (rows, _) = read(tmp_path, "excel.csv", "\ufeffvalue,lr\n0.5,1\n-inf,2\n")

    assert rows == [{"parameters": {"lr": 1}, "value": 0.5}, {"parameters": {"lr": 2}, "value": "-Infinity"}]
    assert read(tmp_path, "found.json", '\ufeff[{"parameters": {"lr": 1}, "value": 0.5}]')[0] == rows[:1]


def a_view(parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An entry of the list of trials."""
    defaults = dict.fromkeys(PLAIN_FIELDS) | {"status": "succeeded", "value": 0.5, "final": {}, "last": None}
    return defaults | {"parameters": parameters} | fields


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def test_a_table_from_anywhere_has_a_value_and_parameters(tmp_path: Path) -> None:
    text = "lr,optimizer,fast,value\n1e-4,sgd,true,0.5\n0.1,adam,,NaN\n"

    assert read(tmp_path, "found.csv", text) == (
        [
            {"parameters": {"lr": 0.0001, "optimizer": "sgd", "fast": True}, "value": 0.5},
            {"parameters": {"lr": 0.1, "optimizer": "adam"}, "value": "NaN"},
        ],
        0,
    )


@pytest.mark.parametrize("name", ["found.json", "found.jsonl"])
def test_objects_are_read_and_rows_without_a_result_left_out(tmp_path: Path, name: str) -> None:
    views = [
        a_view({"lr": 0.1}),
        a_view({"lr": 0.2}, status="failed", value=None),
        a_view({"lr": 0.3}, status="running", value=None),
        a_view({"lr": 0.4}, status="early_stopped", last={"step": 3, "metrics": {}}),
    ]
    text = json.dumps(views) if name.endswith(".json") else "\n".join(map(json.dumps, views))

    assert read(tmp_path, name, text) == (
        [
            {"parameters": {"lr": 0.1}, "value": 0.5, "status": "succeeded"},
            {"parameters": {"lr": 0.2}, "value": None, "status": "failed"},
            {"parameters": {"lr": 0.4}, "value": 0.5, "status": "early_stopped", "step": 3},
        ],
        1,
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "lr,loss\n0.1,0.5\n", "no column value"),
        ("a.csv", "lr;value\n0,1;0,5\n", "by semicolons; save it with commas between them, and points before"),
        ("a.csv", '"lr";"value"\n0.1;0.5\n', "separates its columns by semicolons"),
        ("a.csv", "sep=;\nlr;value\n0.1;0.5\n", "separates its columns by semicolons"),
        ("a.csv", "lr\tvalue\n0.1\t0.5\n", "separates its columns by tabs"),
        ("a.csv", "lr;loss\n0.1;0.5\n", "no column value"),
        ("a.csv", "", "has no results: it is empty"),
        ("a.csv", "lr,value\n0.1,good\n", "no number"),
        ("a.csv", "lr,value\n0.1,\n", "no value"),
        ("a.json", "[1]", "should be an object"),
        ("a.json", '[{"value": 1}]', "should be an object"),
        ("a.json", '[{"parameters": {}}]', "no value"),
        ("a.jsonl", "{", "neither csv nor json"),
        ("a.json", "[" * 100_000, "neither csv nor json"),
    ],
)
def test_what_holds_no_results_is_refused_with_the_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        read(tmp_path, name, text)


# ── there and back ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "parameters",
    [
        {"lr": 0.1, "n": 3, "fast": False, "none": None, "name": "sgd"},
        {"a": "\r", "b": "x\ry", "c": "x\r\ny", "d": "x\n", "e": "\u2028", "f": "\x85\x1c"},
        {"a": "7", "b": "true", "c": "null", "d": "", "e": "1e5", "f": '"quoted"', "g": "NaN", "h": "x,y\nz"},
        {"layer": {"_name": "conv", "kernel": 3, "inner": {"_name": "deep", "x": "1"}}, "with.dot": 1},
        {"list": [1, "a"], "constant": {"b": 1}},
        {"layer": {"_name": "none"}},
    ],
)
def test_parameters_survive_the_table(tmp_path: Path, parameters: dict[str, Any]) -> None:
    columns = [*PLAIN_FIELDS, *flattened(parameters, "parameters.")]
    text = "".join(csv_text(columns, [flat_trial(a_view(parameters))]))

    [result], _ = read(tmp_path, "found.csv", text)

    assert result["parameters"] == parameters


def test_a_parameter_that_is_not_there_is_an_empty_cell_and_one_that_is_null_is_not(tmp_path: Path) -> None:
    views = [a_view({"decay": None}), a_view({"momentum": None})]
    text = "".join(csv_text([*PLAIN_FIELDS, "parameters.decay", "parameters.momentum"], map(flat_trial, views)))

    results, _ = read(tmp_path, "found.csv", text)

    assert [result["parameters"] for result in results] == [{"decay": None}, {"momentum": None}]


def test_a_message_with_a_carriage_return_leaves_a_row_one_row(tmp_path: Path) -> None:
    views = [a_view({"lr": 0.1}, message="50 %\r100 %"), a_view({"lr": 0.2})]
    text = "".join(csv_text([*PLAIN_FIELDS, "parameters.lr"], map(flat_trial, views)))

    assert "\r\n" not in text
    results, _ = read(tmp_path, "found.csv", text)

    assert [result["parameters"] for result in results] == [{"lr": 0.1}, {"lr": 0.2}]


def test_a_text_with_a_line_end_of_unicode_leaves_an_object_one_line(tmp_path: Path) -> None:
    view = a_view({"sign": "\u2028\x85\x1c"})

    [result], _ = read(tmp_path, "found.jsonl", "".join(json_lines([view])))

    assert result["parameters"] == view["parameters"]


def test_what_is_too_deep_for_json_is_text() -> None:
    assert value_of("[" * 100_000) == "[" * 100_000


def test_special_numbers_stand_by_their_names(tmp_path: Path) -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert value_of(cell("value", plain(value))) == plain(value)


def test_only_a_branch_is_put_together_again() -> None:
    flat = {"a.b": 1, "c._name": "x", "c.d": 2, "c.e.f": 3}

    assert nested(flat) == {"a.b": 1, "c": {"_name": "x", "d": 2, "e.f": 3}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "lr,value\n1,2\n0,1,0,9\n",
            r"result 2: it has more cells than there are columns; are decimals written with c",
        ),
        ("lr,value,lr\n1,2,3\n", "has several columns 'lr'"),
        ("value,value\n1,2\n", "has several columns 'value'"),
    ],
)
def test_a_table_whose_cells_are_not_what_its_heading_says_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        read(tmp_path, "found.csv", text)


def test_empty_cells_and_columns_behind_a_table_are_none(tmp_path: Path) -> None:
    assert read(tmp_path, "found.csv", "lr,value,,\n1,2,,,,\n")[0] == [{"parameters": {"lr": 1}, "value": 2}]


def test_a_long_text_of_a_table_is_read(tmp_path: Path) -> None:
    text = "x" * 200_000

    assert read(tmp_path, "found.csv", f"prompt,value\n{text},1\n")[0] == [{"parameters": {"prompt": text}, "value": 1}]
