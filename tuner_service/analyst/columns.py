"""Columns of trials as JSON text: numbers with as many digits as a screen shows, words by their place in a list."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trials.wire.texts import valid_json
from tuner_service.service.questions import EXACT_DIGITS
from tuner_service.service.views import plain

_MARKS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_NUMBERS = frozenset({int, float, type(None)})
ABSENT = -1  # the code of a cell without a value


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether nothing but numbers, and cells without a value, is there."""
    return set(map(type, values)) <= _NUMBERS


def numbers_json(values: Sequence[float | None], digits: int) -> str:
    """An array: null where there is none, and the strings "NaN", "Infinity", "-Infinity" as marks of what they say."""
    kinds = set(map(type, values))
    if kinds == {float} and math.isfinite(sum(values)):  # type: ignore[arg-type]  # all are floats
        if digits >= EXACT_DIGITS:
            return "[" + ",".join(map(repr, values)) + "]"
        return "[" + ",".join([f"%.{digits}g"] * len(values)) % tuple(values) + "]"
    if kinds == {int}:
        return "[" + ",".join(map(str, values)) + "]"
    return "[" + ",".join(map(_writer(digits), values)) + "]"


def codes_json(values: Sequence[Any]) -> str:
    """``{"words": […], "codes": […]}``: each value by its place among the different ones, ABSENT where it is None."""
    words: dict[str, int] = {}
    codes: list[int] = []
    seen: dict[Any, int] = {}
    for value in values:
        if value is None:
            codes.append(ABSENT)
            continue
        code = seen.get(value) if type(value) is str else None
        if code is None:
            word = valid_json(json.dumps(plain(value), separators=(",", ":")))
            code = words.setdefault(word, len(words))
            if type(value) is str:
                seen[value] = code
        codes.append(code)
    return f'{{"words":[{",".join(words)}],"codes":[{",".join(map(str, codes))}]}}'


def objects_json(texts: Sequence[str]) -> str:
    """An array of what are JSON objects already."""
    return "[" + ",".join(map(_object, texts)) + "]"


def mixed_json(values: Sequence[Any], digits: int, *, numeric: bool) -> str:
    """Numbers as an array, where the whole column has nothing else; else codes."""
    return numbers_json(values, digits) if numeric else codes_json(values)


def _writer(digits: int) -> Callable[[float | None], str]:
    def text(value: float | None) -> str:
        if value is None:
            return "null"
        if type(value) is int:
            return str(value)
        if not math.isfinite(value):
            return _MARKS[repr(value)]
        return repr(value) if digits >= EXACT_DIGITS else f"{value:.{digits}g}"

    return text


def _object(text: str) -> str:
    if "NaN" in text or "Infinity" in text:  # of which strict JSON knows nothing
        text = json.dumps(plain(json.loads(text)))
    return valid_json(text)  # a row of an earlier version may hold text that is none


def joined(columns: Mapping[str, str]) -> str:
    """A JSON object of what is JSON already."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in columns.items()) + "}"
