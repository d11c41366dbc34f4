"""Arguments that scripts give, checked where they are given: an error names the argument, and what it may be.

Whatever is not a number compares as false with every bound: NaN in a deadline is a wait without an end.
"""

from __future__ import annotations

import math
import operator
import os
from typing import Any

SECONDS_LIMIT = 10 * 366 * 86_400.0  # what is longer is meant as "no limit", which is None


def whole_number(value: Any, *, what: str, least: int = 0, most: int | None = None) -> int:
    """``value`` as an int; NumPy's are taken, too. TypeError for no whole number, ValueError for one out of bounds."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {value!r:.60}, a {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{what} is at least {least}, not {number}")
    if most is not None and number > most:
        raise ValueError(f"{what} is at most {most}, not {number if number < 2**70 else 'beyond it'}")
    return number


def seconds(value: Any, *, what: str, may_be_zero: bool = True) -> float:
    """``value`` as a float. TypeError for no number, ValueError for NaN, a negative one, or more than ten years."""
    found = number(value, what=f"{what}, in seconds,")
    if not (found >= 0 if may_be_zero else found > 0):
        bound = "at least 0" if may_be_zero else "more than 0"
        raise ValueError(f"{what} is {bound} seconds, not {found:g}")
    if found > SECONDS_LIMIT:
        raise ValueError(f"{what} is at most {SECONDS_LIMIT:.0f} seconds, not {found:g}")
    return found


def number(value: Any, *, what: str) -> float:
    """``value`` as a float that is no NaN; infinity is one. TypeError for no real number."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{what} is a number, not {value!r:.60}, a {type(value).__name__}") from None
    if math.isnan(found):
        raise ValueError(f"{what} is a number, not NaN")
    return found


def plain_text(value: Any, *, what: str) -> str:
    """``value`` if it is text that can be the name of a file or a variable's value; TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {value!r:.60}, a {type(value).__name__}")
    try:
        os.fsencode(value)  # bytes that are no text come out of the environment as they came in
    except UnicodeEncodeError:
        raise ValueError(f"{what} has half a surrogate pair, which is no text: {value!r:.60}") from None
    if "\0" in value:
        raise ValueError(f"{what} has a NUL character, which no process can be given: {value!r:.60}")
    return value
