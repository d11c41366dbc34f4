"""Text is made valid once, where it comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire.encoding import decode_record
from trials.wire.plain import read_lines
from trials.wire.records import MetricRecord, encode_record
from trials.wire.texts import line_fault, one_line, text_fault, valid_json, valid_text

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()) | st.sampled_from('\0\\"u\ud800\udc00'))


@given(ANY_TEXT)
def test_a_text_read_from_valid_json_is_the_text_made_valid(text: str) -> None:
    told = json.loads(valid_json(json.dumps({text: [text]})))

    [(name, [value])] = told.items()
    assert name == value
    assert not text_fault(value)
    assert value.encode().decode() == value
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # halves that meet are one
    assert value == valid_text(whole)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_valid_text_is_left_as_it_is(text: str) -> None:
    assert valid_text(text) == text
    assert not text_fault(text)
    assert json.loads(valid_json(json.dumps(text))) == text


@given(ANY_TEXT)
def test_a_line_of_text_stands_in_one_line(text: str) -> None:
    line = one_line(text)

    assert len(line) == len(text)
    assert line.splitlines() in ([], [line])
    assert not line_fault(line)
    assert bool(line_fault(text)) is (line != text)


@pytest.mark.parametrize("text", ["", "\\", "\\u", '"\\u00', '"\\ud8', "{\\ud800", "\\" * 101, '"\\ud800\\'])
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(valid_json(text))


def test_a_backslash_before_the_letters_is_no_escape() -> None:
    assert json.loads(valid_json(r'"\\ud800 \ud83d\ude00 \ud83d \u0000"')) == "\\ud800 \U0001f600 \ufffd \ufffd"


def test_a_metric_named_with_half_a_pair_is_taken_under_a_valid_name() -> None:
    line = encode_record(MetricRecord(step=1, values={"loss\ud800": 0.5}, at=1.0, final=False)).decode()

    assert decode_record(line) == MetricRecord(step=1, values={"loss\ufffd": 0.5}, at=1.0, final=False)
    found = read_lines([line])
    assert found is not None
    assert found[0]["values"] == {"loss\ufffd": 0.5}
