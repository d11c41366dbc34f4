"""JSON values: which of them mean the same, and which are written the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

INTEGER_LIMIT = 2**53  # beyond, a float cannot tell neighbouring integers apart


def canonical(value: Any) -> Any:
    """The same value for everything that means the same: 1.0 is 1 (JavaScript writes it so), True is not 1."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= INTEGER_LIMIT:
        return int(value)
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def value_key(value: Any) -> str:
    """One text for values that mean the same, whatever the order of their keys."""
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))


def is_one_of(value: Any, values: Iterable[Any]) -> bool:
    """Whether one of ``values`` means the same."""
    if isinstance(value, str | int):  # then what means the same is equal, though not the other way round: True == 1
        values = [other for other in values if other == value]
    key = value_key(value)
    return any(value_key(other) == key for other in values)


def written_alike(one: Any, other: Any) -> bool:
    """Whether both are the same text, but for the order of keys: whoever reads them gets equal values of equal types.

    Python's ``==`` says so of ``[0, 1]`` and ``[False, True]``, too, and of 1 and 1.0.
    """
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
