"""Fewer points of a curve that show the same: its ends, the least and the greatest of each stretch, and every gap."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner_service.analyst.evenly import evenly

LEAST_POINTS = 4  # the ends, the least and the greatest


def down_sampled(values: Sequence[float], points: int) -> list[int]:
    """Places of at most ``points`` (LEAST_POINTS or more) of ``values``, ascending.

    The first and the last stay, and the least and the greatest of all that are finite. The others are cut into
    stretches of equal length, of which the least and the greatest stay (min-max decimation). Of values that are not
    finite, the ends of each run stay, up to a quarter of all points.
    """
    if len(values) <= points:
        return list(range(len(values)))
    finite: Sequence[int] = range(len(values))
    marks: Sequence[int] = ()
    if not math.isfinite(sum(values)):
        finite = [place for place, value in enumerate(values) if math.isfinite(value)]
        marks = evenly(_ends_of_runs(values), min(points // 4, points - LEAST_POINTS))
    kept = {0, len(values) - 1, *marks}
    stretches = (points - len(kept)) // 2
    for stretch in range(stretches):
        places = finite[stretch * len(finite) // stretches : (stretch + 1) * len(finite) // stretches]
        if places:
            kept.add(min(places, key=values.__getitem__))
            kept.add(max(places, key=values.__getitem__))
    return sorted(kept)


def _ends_of_runs(values: Sequence[float]) -> list[int]:
    """Places where values that are not finite begin and end, each kind by itself."""
    found = []
    last = len(values) - 1
    for place, value in enumerate(values):
        if not math.isfinite(value):
            same_before = place > 0 and _same(values[place - 1], value)
            same_after = place < last and _same(values[place + 1], value)
            if not (same_before and same_after):
                found.append(place)
    return found


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
