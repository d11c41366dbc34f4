"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from typing import Any

SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION_S = 10 * 366 * 86400.0
BYTES_OF = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
BYTES_OF |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MAX_BYTES = 1 << 50
MAX_CHARACTERS = 100  # of a written quantity; a longer one means none
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgt]?i?b?)")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse_duration(value: Any) -> float:
    """Seconds: a number, or text such as "90s", "10m", "1h30m"."""
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(f'should be a duration such as "90s", "10m", "1h30m", or seconds, got {value!r:.40}')
    return seconds


def parse_bytes(value: Any) -> int:
    """Bytes: a whole number, or text such as "800 MiB", "8GB", "2g" (2 GiB)."""
    size: float | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and len(value) <= MAX_CHARACTERS:
        match = _SIZE.fullmatch(value.replace(" ", "").lower())
        factor = BYTES_OF.get(match[2]) if match else None
        size = float(match[1]) * factor if match and factor else None
    if size is None or not 0 <= size <= MAX_BYTES:
        raise ValueError(f'should be a size such as "800MiB", "8GB", or bytes, got {value!r:.40}')
    return int(size)


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Compared before it is converted: no float can hold a whole number of 400 digits.
        return float(value) if 0 <= value <= MAX_DURATION_S else None
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
        return None
    text = value.replace(" ", "").lower()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * SECONDS_OF[unit] for number, unit in parts)
