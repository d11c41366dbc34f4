"""Some of many, spread evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def evenly(items: Sequence[Item], limit: int) -> list[Item]:
    """At most ``limit`` of them, the first and the last included; with a limit of one the last."""
    if len(items) <= limit:
        return list(items)
    if limit < 2:
        return [items[-1]] if limit else []
    return [items[place * (len(items) - 1) // (limit - 1)] for place in range(limit)]
