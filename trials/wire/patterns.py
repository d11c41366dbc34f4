"""The regular expression that finds metrics in a trial's output, as far as others than its matcher may look at it.

Standard library only. An expression of a few characters can keep a processor busy for hours, and a few hundred take
seconds to compile. So whoever has something else to do only parses it, which takes about as long as it is long; what
compiles and matches it is a process of its own (``trials.agent.supervision.matching``).
"""

from __future__ import annotations

import re._constants as constants  # type: ignore[import-not-found]  # no public way to parse without compiling
import re._parser as parser  # type: ignore[import-not-found]  # the same: only it parses without compiling
from collections.abc import Iterator
from typing import Any

METRICS_PATTERN_LENGTH = 1_000  # characters; a longer one is refused
_LOOKS = frozenset({constants.ASSERT, constants.ASSERT_NOT})


def groups_of(pattern: str) -> tuple[str, ...]:
    """The names of its groups; ValueError says why it is no regular expression, or too long."""
    if len(pattern) > METRICS_PATTERN_LENGTH:
        raise ValueError(f"has {len(pattern)} characters, and at most {METRICS_PATTERN_LENGTH} are taken")
    try:
        parsed = parser.parse(pattern)
        for direction, inner in _looks(parsed):
            narrowest, widest = inner.getwidth()
            if direction < 0 and narrowest != widest:
                raise ValueError("is no regular expression: look-behind requires fixed-width pattern")
    except (constants.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return tuple(parsed.state.groupdict)


def _looks(part: Any) -> Iterator[tuple[int, Any]]:
    """Everything below ``part`` that looks ahead (1) or behind (-1)."""
    if isinstance(part, parser.SubPattern):
        for code, argument in part.data:
            if code in _LOOKS:
                yield argument
            yield from _looks(argument)
    elif isinstance(part, tuple | list):
        for item in part:
            yield from _looks(item)
