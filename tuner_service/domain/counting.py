"""Counting what a space holds, and dividing it into a grid."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import Any

from tuner_service.domain.ranges import Choice, Option, Parameter, Range
from tuner_service.domain.trial import Parameters

COUNT_LIMIT = 10_000  # places of a grid that are looked at, to count those that are not empty


def size(parameters: tuple[Parameter, ...]) -> float:
    """As though every condition held; ``math.inf`` with a continuous parameter."""
    sizes = [_range_size(parameter.range) for parameter in parameters]
    return math.inf if math.inf in sizes else _product(sizes)


def has_conditions(parameters: tuple[Parameter, ...]) -> bool:
    return any(
        parameter.when is not None
        or (
            isinstance(parameter.range, Choice)
            and any(has_conditions(option.branch or ()) for option in parameter.range.options)
        )
        for parameter in parameters
    )


def grid_size(parameters: tuple[Parameter, ...], points: int) -> int:
    return math.prod(_range_grid_size(parameter.range, points) for parameter in parameters)


def grid_point(
    parameters: tuple[Parameter, ...], index: int, points: int, around: Parameters | None = None
) -> Parameters | None:
    """None where a parameter that is not there would stand at another than its first value."""
    places: dict[str, int] = {}
    for parameter in reversed(parameters):
        index, places[parameter.name] = divmod(index, _range_grid_size(parameter.range, points))
    point: Parameters = {}
    known = dict(around or {})
    for parameter in parameters:
        place = places[parameter.name]
        if parameter.when is not None and not parameter.when.holds(known):
            if place:
                return None
            continue
        value = _grid_value(parameter.range, place, points, known)
        if value is None and isinstance(parameter.range, Choice) and not _is_null(parameter.range, place, points):
            return None
        point[parameter.name] = known[parameter.name] = value
    return point


def _product(sizes: list[float]) -> float:
    return math.prod(sizes) if math.prod(map(float, sizes)) != math.inf else math.inf


def _range_size(range_: Range) -> float:
    if not isinstance(range_, Choice):
        return range_.size
    sizes = [1 if option.branch is None else size(option.branch) for option in range_.options]
    total = sum(sizes)
    # Whole numbers beyond every float can be added, but not compared with what is counted in floats.
    return total if total <= sys.float_info.max else math.inf


def _range_grid_size(range_: Range, points: int) -> int:
    if not isinstance(range_, Choice):
        return range_.grid_size(points)
    return (
        len(range_.options) if range_.is_flat else sum(_option_grid_size(option, points) for option in range_.options)
    )


def _option_grid_size(option: Option, points: int) -> int:
    return 1 if option.branch is None else grid_size(option.branch, points)


def _option_at(range_: Choice, place: int, points: int) -> tuple[Option, int]:
    """The option that ``place`` belongs to, and the place inside it."""
    if range_.is_flat:  # there may be a hundred thousand of them
        return range_.options[place], 0
    firsts = list(accumulate((_option_grid_size(option, points) for option in range_.options), initial=0))
    index = bisect_right(firsts, place) - 1
    return range_.options[index], place - firsts[index]


def _is_null(range_: Choice, place: int, points: int) -> bool:
    return _option_at(range_, place, points)[0].branch is None


def _grid_value(range_: Range, place: int, points: int, known: Parameters) -> Any:
    """None for an empty place of a nested space."""
    if not isinstance(range_, Choice):
        return range_.grid_value(place, points)
    option, inner = _option_at(range_, place, points)
    if option.branch is None:
        return option.value
    point = grid_point(option.branch, inner, points, known)
    return None if point is None else {"_name": option.value, **point}
