"""Numbers that are typed, before it is known what for."""

from __future__ import annotations


def may_stand(text: str, *, for_value: bool) -> bool:
    """For a FILE, or a VALUE, of which argparse knows -1 and not -1e-05 or -inf; else it is an option."""
    return text == "-" or not text.startswith("-") or (for_value and is_number(text))


def is_number(text: str) -> bool:
    """As Python prints one, or reads one: also -1e-05, .5, inf and nan."""
    try:
        float(text)
    except ValueError:
        return False
    return True
