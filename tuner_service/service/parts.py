"""Which part of an attempt of several nodes a person means."""

from __future__ import annotations

from tuner_service.domain.errors import NotFoundError
from tuner_service.domain.trial import Attempt, Part


def part_on(attempt: Attempt, node: int) -> Attempt | Part:
    """Of an attempt of one node, the attempt. NotFoundError where it has no such node."""
    held: tuple[Attempt | Part, ...] = attempt.parts or (attempt,)
    if node >= len(held):
        raise NotFoundError("log", f"{attempt.key} of node {node}", f"it has {len(held)}, counted from 0")
    return held[node]
