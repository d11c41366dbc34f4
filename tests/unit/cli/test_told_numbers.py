"""Numbers on a command line, as Python, awk and spreadsheets write them."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_service.cli.main import _parse
from tuner_service.cli.typed import assigned, metric_of
from tuner_service.cli.verbs import tell


@pytest.mark.parametrize("text", ["-1", "-1e-05", "-2.5E-3", "-.5", "-inf", "-Infinity", "-nan"])
@pytest.mark.parametrize("before", [[], ["--step", "3"]])
def test_a_value_below_zero_is_a_value_however_it_is_written(text: str, before: list[str]) -> None:
    assert _parse(["tell", "digits", "token", *before, text]).value == text


@pytest.mark.parametrize("text", ["-x", "--1e-05", "-1e-05x"])
def test_what_is_no_number_is_no_value(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["tell", "digits", "token", text])
    assert f"unrecognized arguments: {text}" in capsys.readouterr().err


def test_a_number_takes_the_place_of_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["import", "digits", "-1e-05"])
    assert "unrecognized arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("-1e-05", -1e-05), (".5", 0.5), ("-inf", "-Infinity"), ("inf", "Infinity"), ("nan", "NaN"),
        ("-Infinity", "-Infinity"), ("NaN", "NaN"), ("true", True), ("x", "x"),
    ],
)  # fmt: skip
def test_a_metric_is_what_its_text_says(text: str, value: Any) -> None:
    told = tell._body(_parse(["tell", "digits", "token", "--metric", f"loss={text}", text]))

    assert (told["value"], told["values"]) == (value, {"loss": value})
    assert type(metric_of(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("lr=0.1", "lr", "0.1"), ("a=b=1", "a", "b=1"), ('"a=b"=1', "a=b", "1"), (r'"a\"=="="="', 'a"==', '"="'),
        ('"a"b=1', '"a"b', "1"), ('"a=1', '"a', "1"), ("=1", "", "1"), ('""=1', "", "1"),
    ],
)  # fmt: skip
def test_a_name_with_the_sign_in_it_is_written_in_quotes(text: str, name: str, value: str) -> None:
    assert assigned(text) == (name, "=", value)
