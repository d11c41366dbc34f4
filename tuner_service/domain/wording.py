"""Words of sentences for people."""

from __future__ import annotations


def counted(count: int, thing: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
