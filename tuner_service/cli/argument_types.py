"""What an argument of a command may be; argparse names it where it is refused."""

from __future__ import annotations

import argparse
from contextlib import suppress

NO_BOUND = "none"  # of the trials of a budget, or of its duration


def duration(text: str) -> str | float:
    """As in a file: a number is seconds. What else it may be the service knows."""
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def index(text: str) -> int:
    return _whole_number(text, least=0)


def count(text: str) -> int:
    return _whole_number(text, least=1)


def bound(text: str) -> int | str:
    return text if text == NO_BOUND else count(text)


def _whole_number(text: str, *, least: int) -> int:
    with suppress(ValueError):
        if int(text) >= least:
            return int(text)
    raise argparse.ArgumentTypeError(f"a whole number from {least} on, not {text}")
