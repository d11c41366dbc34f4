"""Values of parameters, compared."""

from __future__ import annotations

import json
from typing import Any

INTEGER_LIMIT = 2**53  # beyond, a float cannot tell neighbouring integers apart; such bounds are refused


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
    """One text for equal JSON values, whatever the order of their keys."""
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
