"""Dataclasses as plain JSON values, and back again: exact, and checked throughout. Standard library only."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from trials.wire.texts import valid_json


class ProtocolError(ValueError):
    """A message that cannot be understood; its text says which field and why."""


def to_plain(value: Any) -> Any:
    """Dataclasses become objects, tuples become lists; the rest stays."""
    kind: Any = type(value)
    if kind in _LEAVES:
        return value
    names = _names(kind)
    if names is not None:
        plain = {}
        for name in names:  # most parts are leaves: no call for those
            part = getattr(value, name)
            plain[name] = part if type(part) in _LEAVES else to_plain(part)
        return plain
    if isinstance(value, tuple | list):
        return list(value) if set(map(type, value)) <= {str} else [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    return value


_LEAVES = frozenset({str, int, float, bool, type(None)})


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass; None of another type."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


@cache
def _types_as_they_are(cls: Any) -> dict[str, frozenset[type[Any]]]:
    """Of each field, the types of plain values that stay what they are."""
    found = {}
    for name, hint in _hints(cls).items():
        parts = _arguments(hint) if _origin(hint) in (Union, types.UnionType) else (hint,)
        found[name] = frozenset(parts) & _LEAVES
    return found


# Types are few, and looked at for every field of every message.
@cache
def _origin(expected: Any) -> Any:
    return get_origin(expected)


@cache
def _arguments(expected: Any) -> tuple[Any, ...]:
    return get_args(expected)


def from_plain(expected: Any, value: Any, *, where: str) -> Any:
    """``value`` as ``expected`` (a dataclass or a type of their fields), checked throughout.

    Unknown fields are ignored, so that the next version may add some; missing ones without a default are an error.
    """
    if expected is Any:
        return value
    if expected in _LEAVES and type(value) is expected:
        return value
    origin = _origin(expected)
    if origin in (Union, types.UnionType):
        return _from_optional(expected, value, where)
    if origin is tuple:
        _require(value, list, where)
        item = _arguments(expected)[0]
        if item is str and set(map(type, value)) <= {str}:  # the lines of reports come in thousands
            return tuple(value)
        return tuple(from_plain(item, v, where=f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        _require(value, dict, where)
        item = _arguments(expected)[1]
        if item is Any:
            return dict(value)
        return {k: from_plain(item, v, where=f"{where}.{k}") for k, v in value.items()}
    if isinstance(expected, type) and _names(expected) is not None:
        return _from_object(expected, value, where)
    if isinstance(expected, type) and issubclass(expected, Enum):
        return _from_member(expected, value, where)
    if expected is float and type(value) is int:
        return float(value)
    _require(value, expected, where)
    return value


def _from_optional(expected: Any, value: Any, where: str) -> Any:
    if value is None:
        return None
    inner = [a for a in _arguments(expected) if a is not type(None)]
    return from_plain(inner[0], value, where=where)


def _from_member(expected: type[Enum], value: Any, where: str) -> Enum:
    try:
        return expected(value)
    except ValueError as exc:
        raise ProtocolError(f"{where}: {exc}") from exc


def _from_object(expected: Any, value: Any, where: str) -> Any:
    _require(value, dict, where)
    hints, as_they_are = _hints(expected), _types_as_they_are(expected)
    known = {}
    for name, part in value.items():
        if name in hints:
            fits = type(part) in as_they_are[name]
            known[name] = part if fits else from_plain(hints[name], part, where=f"{where}.{name}")
    try:
        return expected(**known)
    except TypeError as exc:
        raise ProtocolError(f"{where}: {exc}") from exc


def _require(value: Any, expected: Any, where: str) -> None:
    if type(value) is not expected:
        raise ProtocolError(f"{where}: expected {expected.__name__}, got {type(value).__name__}")


_MARK = os.urandom(8).hex()
_BETWEEN_LINES = f',"{_MARK}",'


def read_lines(lines: Sequence[str]) -> list[Any] | None:
    """What each line holds, its texts valid, read in one go; None where some line is not exactly one JSON value.

    Lines come in thousands, and reading them one by one takes twice as long.
    """
    if not lines:
        return []
    try:
        found = json.loads(valid_json(f"[{_BETWEEN_LINES.join(lines)}]"))
    except (ValueError, RecursionError):
        return None
    # No line can hold the marks, so none can begin a value that another ends.
    marks = found[1::2]
    return found[::2] if len(found) == 2 * len(lines) - 1 and marks.count(_MARK) == len(marks) else None
