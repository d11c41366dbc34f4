"""Dataclasses as plain JSON values, and back again: exact, and checked throughout. Standard library only."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache, partial
from typing import Any, Union, get_args, get_origin, get_type_hints

from trials.wire.texts import valid_json


class ProtocolError(ValueError):
    """A message that cannot be understood; its text says which field and why."""


# ── out ─────────────────────────────────────────────────────────────────────────────────────────
def to_plain(value: Any, *, free: Callable[[Any], Any] | None = None, brief: bool = False) -> Any:
    """Dataclasses become objects, tuples become lists; the rest stays.

    ``free`` makes what is plain of the values that no type describes (fields of type Any, or of dicts of it), where
    more of them is to survive than JSON has; whoever reads them undoes it before ``from_plain``. ``brief``: fields that
    have None or False as their default, and hold it, are left out: ``from_plain`` fills them in.
    """
    kind: Any = type(value)
    if kind in _LEAVES:
        return value
    write = _writer(kind, free, brief)
    if write is not None:
        return write(value)
    if isinstance(value, tuple | list):
        # The lines and numbers of reports come in thousands.
        if _LEAVES.issuperset(map(type, value)):
            return list(value)
        return [to_plain(v, free=free, brief=brief) for v in value]
    if isinstance(value, dict):
        if _LEAVES.issuperset(map(type, value.values())):  # as the payload of nearly every line of a journal
            return dict(value)
        return {k: to_plain(v, free=free, brief=brief) for k, v in value.items()}
    return value


_LEAVES = frozenset({str, int, float, bool, type(None)})


@cache
def _writer(cls: Hashable, free: Callable[[Any], Any] | None, brief: bool) -> Callable[[Any], Any] | None:  # noqa: FBT001
    """What makes an object of a dataclass; None of another type.

    Compiled once for each, as ``dataclasses`` compiles their constructors: an object display with every field in it
    takes a third of the time of a loop over the fields.
    """
    if not is_dataclass(cls):
        return None
    names: dict[str, Any] = {"free": free, "rest": partial(to_plain, free=free, brief=brief)}
    always, sometimes = [], []
    for entry in fields(cls):
        name, hint = entry.name, _hints(cls)[entry.name]
        made = "{}" if _is_leaf(hint) else "free({})" if free is not None and _is_free(hint) else "rest({})"
        if get_origin(hint) is tuple and _is_leaf(get_args(hint)[0]):
            made = "list({})"
        elif isinstance(hint, type) and is_dataclass(hint) and hint is not cls:
            made, names[f"write_{name}"] = f"write_{name}({{}})", _writer(hint, free, brief)
        made = made.format(f"value.{name}")
        if brief and (entry.default is None or entry.default is False):
            sometimes.append(f"    if value.{name} is not {entry.default}: plain[{name!r}] = {made}\n")
        else:
            always.append(f"{name!r}: {made}")
    source = f"def write(value):\n    plain = {{{', '.join(always)}}}\n{''.join(sometimes)}    return plain\n"
    exec(source, names)  # noqa: S102  nothing in it but names of fields
    write: Callable[[Any], Any] = names["write"]
    return write


def _is_leaf(hint: Any) -> bool:
    """Whether every value of the type is plain as it is."""
    if get_origin(hint) in (Union, types.UnionType):
        return all(map(_is_leaf, get_args(hint)))
    if get_origin(hint) is list:
        return _is_leaf(get_args(hint)[0])
    return hint in _LEAVES or (isinstance(hint, type) and issubclass(hint, StrEnum))


def _is_free(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(map(_is_free, get_args(hint)))
    return hint is Any or (get_origin(hint) is dict and _is_free(get_args(hint)[1]))


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


# ── in ──────────────────────────────────────────────────────────────────────────────────────────
Reader = Callable[[Any, str], Any]


def from_plain(expected: Any, value: Any, *, where: str) -> Any:
    """``value`` as ``expected`` (a dataclass or a type of their fields), checked throughout.

    Unknown fields are ignored, so that the next version may add some; missing ones without a default are an error.
    """
    return _reader(expected)(value, where)


@cache
def _reader(expected: Any) -> Reader:
    """What checks a value of the type, given where it stands. Made once: looking at types takes longer than at values.

    Those of dataclasses look for the readers of their fields when they are first used, because such a class may have
    fields of its own type.
    """
    origin = get_origin(expected)
    if expected is Any:
        return lambda value, _: value
    if origin in (Union, types.UnionType):
        return _optional(_reader(next(a for a in get_args(expected) if a is not type(None))))
    if origin in (tuple, list):
        return _sequence(origin, get_args(expected)[0])
    if origin is dict:
        return _mapping(get_args(expected)[1])
    if isinstance(expected, type) and is_dataclass(expected):
        return partial(_read_object, expected)
    if isinstance(expected, type) and issubclass(expected, Enum):
        return partial(_read_member, expected)
    return partial(_read_leaf, expected)


def _optional(inner: Reader) -> Reader:
    return lambda value, where: None if value is None else inner(value, where)


def _sequence(made: Callable[[Iterable[Any]], Any], item: Any) -> Reader:
    one, as_they_are = _reader(item), _types_as_they_are(item)

    def read(value: Any, where: str) -> Any:
        _require(value, list, where)
        if as_they_are.issuperset(map(type, value)):  # the lines and numbers of reports come in thousands
            return made(value)
        return made(one(v, f"{where}[{index}]") for index, v in enumerate(value))

    return read


def _mapping(item: Any) -> Reader:
    one = _reader(item)

    def read(value: Any, where: str) -> dict[str, Any]:
        _require(value, dict, where)
        return value if item is Any else {k: one(v, f"{where}.{k}") for k, v in value.items()}

    return read


def _read_leaf(expected: type[Any], value: Any, where: str) -> Any:
    if expected is float and type(value) is int:
        return float(value)
    _require(value, expected, where)
    return value


def _read_member(expected: type[Enum], value: Any, where: str) -> Enum:
    try:
        return expected(value)
    except ValueError as exc:
        raise ProtocolError(f"{where}: {exc}") from exc


def _read_object(expected: Any, value: Any, where: str) -> Any:
    _require(value, dict, where)
    readers = _readers(expected)
    known = {}
    for name, part in value.items():
        if name in readers:
            as_they_are, read = readers[name]
            known[name] = part if type(part) in as_they_are else read(part, f"{where}.{name}")
    try:
        return expected(**known)
    except TypeError as exc:
        raise ProtocolError(f"{where}: {exc}") from exc


@cache
def _readers(cls: Any) -> dict[str, tuple[frozenset[type[Any]], Reader]]:
    """Of each field the types of plain values that stay what they are, and what reads the others."""
    return {name: (_types_as_they_are(hint), _reader(hint)) for name, hint in _hints(cls).items()}


def _types_as_they_are(hint: Any) -> frozenset[type[Any]]:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found = {dict if get_origin(part) is dict and _is_free(part) else part for part in parts}
    return frozenset(found & {*_LEAVES, dict})


def _require(value: Any, expected: Any, where: str) -> None:
    if type(value) is not expected:
        raise ProtocolError(f"{where}: expected {expected.__name__}, got {type(value).__name__}")


# ── many lines at once ──────────────────────────────────────────────────────────────────────────
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
