"""What a body may be, at its limits and beyond."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner_service.api.bodies import strict_json
from tuner_service.api.bodies.strict_json import (
    MAX_DIGITS,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    MAX_KEY,
    MAX_KEYS,
    MAX_SHOWN,
    canonical_digest,
    characters_of,
    count_values,
    parse_json,
    shown,
)
from tuner_service.domain.errors import InputError, LimitExceededError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def parts_of(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(part for item in inner for part in parts_of(item))]


@settings(max_examples=50, deadline=None)  # the cores are shared
@given(value=JSON, piece=st.integers(1, 9), plain=st.booleans())
def test_values_are_counted_wherever_the_pieces_end(value: Any, piece: int, plain: bool) -> None:
    data = json.dumps(value, ensure_ascii=plain).encode(errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_PIECE_BYTES", piece)
        counted = count_values(data)

    parts = parts_of(value)
    assert len(parts) <= counted <= len(parts) + sum(isinstance(part, dict | list) for part in parts)


def test_as_many_values_as_are_taken_are_taken_and_more_are_not() -> None:
    most = b"[" + b"1," * (MAX_JSON_VALUES - 3) + b"1]"

    assert len(parse_json(most)) == MAX_JSON_VALUES - 2
    with pytest.raises(LimitExceededError, match=str(MAX_JSON_VALUES)):
        parse_json(b"[" + b"1," * MAX_JSON_VALUES + b"1]")


def test_a_comma_in_a_text_is_no_value() -> None:
    text = '\\",[{' * MAX_JSON_VALUES

    assert parse_json(json.dumps({"a": text}).encode()) == {"a": text}


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        (b"9" * MAX_DIGITS, b"9" * (MAX_DIGITS + 1)),
        (b'{"%s": 1}' % (b"k" * MAX_KEY), b'{"%s": 1}' % (b"k" * (MAX_KEY + 1))),
        (b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH, b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1)),
        (json.dumps(dict.fromkeys(map(str, range(MAX_KEYS)))).encode(),
         json.dumps(dict.fromkeys(map(str, range(MAX_KEYS + 1)))).encode()),
        (b'{"a": 1, "b": {"a": 1}}', b'{"a": 1, "b": {"c": 1, "c": 1}}'),
        (json.dumps("é" * 3_000_000, ensure_ascii=False).encode(), b'"' + "é".encode() * 3_000_000 + b'\\ud83d"'),
    ],
    ids=["digits", "key", "depth", "keys", "key twice", "surrogate"],
)  # fmt: skip
def test_the_limit_itself_is_taken_and_what_is_beyond_is_refused(taken: bytes, refused: bytes) -> None:
    assert parse_json(taken) == json.loads(taken)
    with pytest.raises(InputError):
        parse_json(refused)


def test_a_key_that_stands_twice_is_named_and_a_long_one_shortened() -> None:
    with pytest.raises(InputError) as one:
        parse_json(b'{"a": 1, "b": 1, "b": 1}')
    with pytest.raises(InputError) as long:
        parse_json(b'{"%s": 1, "%s": 1}' % (b"k" * 1_000, b"k" * 1_000))

    assert '"b" stands twice' in one.value.faults[0].message
    assert len(long.value.faults[0].message) < 200


@settings(max_examples=50, deadline=None)  # the cores are shared
@given(value=JSON)
def test_what_is_shown_is_the_beginning(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)

    assert shown(value) == (text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def turned(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: turned(part) for key, part in reversed(item.items())}
    return [turned(part) for part in item] if isinstance(item, list) else item


@settings(max_examples=50, deadline=None)  # the cores are shared
@given(value=JSON)
def test_equal_values_have_one_digest(value: Any) -> None:
    assert canonical_digest(value) == canonical_digest(turned(value))
    assert canonical_digest([value]) != canonical_digest(value)


def test_characters_are_counted_about_as_they_are_written() -> None:
    value = {"name": "x" * 1_000, "values": ["a"] * 500}

    assert len(json.dumps(value)) * 0.8 < characters_of(value) < len(json.dumps(value)) * 1.2
