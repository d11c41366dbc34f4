"""Strict JSON: what a body may be, found in time that grows with its length and no faster.

The parser of the standard library holds the interpreter while it reads a list, however long it is. So what stands in
a body is counted before it is parsed, and numbers and objects are made by functions of ours, between which other
threads have their turn.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from typing import Any

from trials.wire.texts import text_fault
from tuner_service.domain.errors import Fault, InputError, LimitExceededError

MAX_JSON_DEPTH = 50  # beyond: 422
MAX_JSON_VALUES = 500_000  # numbers, texts, lists and objects of one body, keys left out; beyond: 413
MAX_KEYS = 10_000  # of one object; beyond: 422
MAX_KEY = 1_000  # characters; pointers of faults repeat keys, once for everything below
MAX_DIGITS = 1_000  # of a whole number: reading one takes time that grows with their square
MAX_SHOWN = 60  # characters of a wrong value that a fault repeats

_PIECE_BYTES = 64 << 10  # looked at without a pause
_PIECE_CHARACTERS = 1 << 20  # likewise
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_CHARACTERS_BESIDE = 4  # quotes, commas and brackets of a text, or what a number has
_TELLS_NOTHING = bytes(set(range(256)) - set(b'",[{'))


def parse_json(data: bytes) -> Any:
    """No NaN, no number that overflows, no key twice, no NUL or half a surrogate pair: else InputError.

    Of more than MAX_JSON_VALUES: LimitExceededError.
    """
    if len(data) // 2 > MAX_JSON_VALUES and count_values(data) > MAX_JSON_VALUES:
        raise LimitExceededError(f"the body has more than {MAX_JSON_VALUES} values, the most that is taken")
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_decimal,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as exc:
        raise _fault(f"the body is not UTF-8: {exc.reason} at {exc.start}") from exc
    except RecursionError as exc:
        raise _too_deep() from exc
    except ValueError as exc:
        raise _fault(f"the body is not JSON: {exc}") from exc
    _check(value)
    return value


def count_values(data: bytes) -> int:
    """At least as many as JSON in ``data`` has, and at most one more for each list or object."""
    count, inside, left = 1, False, b""
    for start in range(0, len(data), _PIECE_BYTES):
        piece = left + data[start : start + _PIECE_BYTES]
        left = b""
        if b"\\" in piece:
            # An escape may stand across two pieces: its backslash then waits for the next.
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, left = piece[:-1], b"\\"
            piece = _ESCAPED.sub(b"", piece)
        parts = piece.translate(None, _TELLS_NOTHING).split(b'"')
        count += sum(map(len, parts[int(inside) :: 2]))
        inside ^= len(parts) % 2 == 0
    return count


def shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def shown(value: Any) -> str:
    """The beginning of ``value`` as JSON; only that beginning is written."""
    if isinstance(value, str):
        return shortened(json.dumps(value[: MAX_SHOWN + 1], ensure_ascii=False))
    text = ""
    for part in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
        text += part[: MAX_SHOWN + 1]
        if len(text) > MAX_SHOWN:
            break
    return shortened(text)


def canonical_digest(value: Any) -> str:
    """Equal for equal values, whatever the order of their keys."""
    digest = hashlib.sha256()
    for part in json.JSONEncoder(sort_keys=True, separators=(",", ":")).iterencode(value):
        digest.update(part.encode())
    return digest.hexdigest()


def characters_of(value: Any) -> int:
    """About as many as ``value`` has as JSON, without writing it."""
    characters, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            characters += sum(len(name) + _CHARACTERS_BESIDE for name in item)
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        characters += _CHARACTERS_BESIDE + (len(item) if isinstance(item, str) else 0)
    return characters


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decimal(text: str) -> float:
    """Python reads 1e999 as infinity, which is no JSON and nothing that a later step could take."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is larger than any number a float can hold")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits; at most {MAX_DIGITS} are taken")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"an object has {len(pairs)} keys; at most {MAX_KEYS} are taken")
    value = dict(pairs)
    if len(value) != len(pairs):
        doubled = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(doubled)} stands twice in one object")
    return value


def _check(value: Any) -> None:
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_JSON_DEPTH:
            raise _too_deep()
        if isinstance(item, dict):
            for name in item:
                _check_key(name)
            pending += [(part, depth + 1) for part in item.values()]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, str):
            _check_text(item)


def _check_key(name: str) -> None:
    if len(name) > MAX_KEY:
        raise _fault(f"the key {shown(name)} has {len(name)} characters; at most {MAX_KEY} are taken")
    _check_text(name)


def _check_text(text: str) -> None:
    for start in range(0, len(text), _PIECE_CHARACTERS):
        fault = text_fault(text[start : start + _PIECE_CHARACTERS])
        if fault:
            raise _fault(f"the body has text that {fault}")


def _too_deep() -> InputError:
    return _fault(f"the body is nested deeper than {MAX_JSON_DEPTH} levels")


def _fault(message: str) -> InputError:
    return InputError([Fault(pointer="", message=message)])
