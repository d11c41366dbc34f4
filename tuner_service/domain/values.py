"""Values of parameters: what they may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trials.wire.texts import text_fault

VALUE_DEPTH = 32  # lists and objects inside one another; deeper is refused, before a frame or a recursion refuses it
WHOLE_NUMBER_LIMIT = 2**63 - 1  # beyond, arrays and columns cannot hold an integer, and beyond 1e308 no float can


def value_faults(value: Any, pointer: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """(pointer, message) of everything in ``value`` that a tuner, a trial or a row could not take; in order.

    Whoever lets a value in asks this first: people's parameters and results, and what tuners suggest.
    """
    if depth > VALUE_DEPTH:
        yield pointer, f"is nested more than {VALUE_DEPTH} levels deep"
        return
    match value:
        case None | bool():
            return
        case str():
            fault = text_fault(value)
            if fault:
                yield pointer, fault
        case int():
            if abs(value) > WHOLE_NUMBER_LIMIT:
                yield pointer, "is an integer of more than 64 bits"
        case float():
            if not math.isfinite(value):
                yield pointer, f"is {value!r}, which is no finite number"
        case list() | tuple():
            for index, item in enumerate(value):
                yield from value_faults(item, f"{pointer}/{index}", depth + 1)
        case dict():
            for key, item in value.items():
                yield from _key_faults(key, pointer)
                if isinstance(key, str):
                    yield from value_faults(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}", depth + 1)
        case _:
            yield pointer, f"is {value!r:.200}, which is no JSON value"


def _key_faults(key: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if not isinstance(key, str):
        yield pointer, f"has the key {key!r:.200}, which is no text"
        return
    fault = text_fault(key)
    if fault:
        yield pointer, f"has the name {key!r:.200}, which {fault}"


def flattened(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """One level deep, by names behind ``prefix``: a nested choice's own parameters stand beside its ``_name``."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, dict) and "_name" in value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
