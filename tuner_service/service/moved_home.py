"""Files in a home that was moved, or restored at another place: rows name them by the place that the home had then."""

from __future__ import annotations

import os
from pathlib import Path

from trials.stores import is_url
from trials.wire.paths import path_fault

IN_HOME = ("nodes/checkpoints", "checkpoints")


def place_now(location: str, home: Path) -> str:
    """Where the checkpoint of a row lies: as the row says it, unless only this home has it there now."""
    if not is_url(location) and not os.path.lexists(location):
        for folder in IN_HOME:
            _, is_marked, rest = location.rpartition(f"/{folder}/")
            place = home / folder / rest
            if is_marked and path_fault(rest) is None and place.exists():
                return str(place)
    return location
