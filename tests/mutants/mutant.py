"""What a mutant of the named lines is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """In the file ``path``, ``old`` (which stands there once) becomes ``new``."""

    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def mutant(path: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(path, old, new, tests)
