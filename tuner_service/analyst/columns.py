"""Columns of trials as JSON text: numbers with as many digits as a screen shows, words by their place in a list."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trials.wire.texts import valid_json
from tuner_service.service.questions import EXACT_DIGITS
from tuner_service.service.reports import LATEST_S
from tuner_service.service.views import moment, plain

_ENDS = tuple(f'.{millisecond:03d}Z"' for millisecond in range(1_000))
_MARKS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_NUMBERS = frozenset({int, float, type(None)})
ABSENT = -1  # the code of a cell without a value


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether nothing but numbers, and cells without a value, is there."""
    return set(map(type, values)) <= _NUMBERS


def numbers(values: Sequence[float | None], digits: int) -> str:
    """Cells of an array: null where there is none, and "NaN", "Infinity", "-Infinity" as marks of what they say."""
    kinds = set(map(type, values))
    if kinds == {float} and math.isfinite(sum(values)):  # type: ignore[arg-type]  # all are floats
        if digits >= EXACT_DIGITS:
            return ",".join(map(repr, values))
        return ",".join([f"%.{digits}g"] * len(values)) % tuple(values)
    if kinds == {int}:
        return ",".join(map(str, values))
    if kinds == {type(None)}:
        return ",".join(["null"] * len(values))
    return ",".join(map(_writer(digits), values))


def numbers_json(values: Sequence[float | None], digits: int) -> str:
    """An array of them."""
    return f"[{numbers(values, digits)}]"


def moments(values: Sequence[float | None]) -> str:
    """Cells with what ``views.moment`` says. Trials begin and end close together: each second is written once."""
    seconds: dict[int, str] = {}
    texts = []
    for at in values:
        if at is None:
            texts.append("null")
            continue
        if not 0.0 <= at <= LATEST_S:
            texts.append(f'"{moment(at)}"')
            continue
        second = int(at // 1.0)
        begun = seconds.get(second)
        if begun is None:
            begun = seconds[second] = '"' + datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")
        microseconds = round((at - second) * 1e6)
        if microseconds > 999_999:
            texts.append(f'"{moment(at)}"')
        else:
            texts.append(begun + _ENDS[microseconds // 1_000])
    return ",".join(texts)


def codes_json(values: Sequence[Any]) -> str:
    """``{"words": […], "codes": […]}``: each value by its place among the different ones, ABSENT where it is None."""
    different = dict.fromkeys(values) if set(map(type, values)) <= {str} else {}
    if different:
        of_word = {value: str(code) for code, value in enumerate(different)}
        texts = [valid_json(json.dumps(value)) for value in different]
        if len(set(texts)) == len(texts):  # two that could not be sent are one afterwards
            return f'{{"words":[{",".join(texts)}],"codes":[{",".join(map(of_word.__getitem__, values))}]}}'
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


def objects(texts: Sequence[str]) -> str:
    """Cells of what are JSON objects already."""
    together = ",".join(texts)
    if "NaN" in together or "Infinity" in together:  # of which strict JSON knows nothing
        return ",".join(map(_object, texts))
    return valid_json(together)  # a row of an earlier version may hold text that is none


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
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(plain(json.loads(text)))
    return valid_json(text)


def joined(columns: Mapping[str, str]) -> str:
    """A JSON object of what is JSON already."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in columns.items()) + "}"
