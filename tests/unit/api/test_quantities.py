"""Durations and sizes as people write them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tuner_service.api.bodies.quantities import parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(90, 90.0), (1.5, 1.5), ("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("2 H", 7200.0), ("1d", 86400.0),
     ("250ms", 0.25), ("0s", 0.0)],
)  # fmt: skip
def test_a_duration_is_read(value: Any, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "10", 10**400, -(10**400), "9" * 20_000, "1s" * 51, "1s" * 1_000_000, "٣s",
     "m", "1h 30", "-1s", "1x", "1e3s", True, None, [], math.nan, math.inf, -1, 1e12],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="should be a duration"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "size"),
    [(16 << 20, 16 << 20), ("8GB", 8 * 10**9), ("800 MiB", 800 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29),
     ("12b", 12),
     ("1000", 1000), (0, 0)],
)  # fmt: skip
def test_a_size_is_read(value: Any, size: int) -> None:
    assert parse_bytes(value) == size


@pytest.mark.parametrize(
    "value", ["", "GB", "8 cubits", "-1", -1, 1.5, True, None, [], "1e9", "2 PB", 1 << 60, "9" * 101, 10**400]
)
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="should be a size"):
        parse_bytes(value)
