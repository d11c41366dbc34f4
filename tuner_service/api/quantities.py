"""Durations as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION_S = 10 * 366 * 86400.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: Any) -> float:
    """Seconds: a number, or text such as "90s", "10m", "1h30m"."""
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(f'should be a duration such as "90s", "10m", "1h30m", or seconds, got {value!r:.40}')
    return seconds


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.replace(" ", "").lower()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * SECONDS_OF[unit] for number, unit in parts)
