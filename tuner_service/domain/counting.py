"""Counting what a space holds, and dividing it into a grid."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable
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


def looked_at(parameters: tuple[Parameter, ...]) -> int:
    """How many parameters, and parts of their conditions, are looked at in a place of the grid, at most."""
    return sum(
        1 + (0 if parameter.when is None else parameter.when.parts_looked_at) + _looked_at_inside(parameter.range)
        for parameter in parameters
    )


def _looked_at_inside(range_: Range) -> int:
    if not isinstance(range_, Choice) or range_.is_flat:
        return 0
    return max(looked_at(option.branch or ()) for option in range_.options)


Breaks = Callable[[str, Parameters], bool]


class Grid:
    """The places of a space of which continuous parameters are divided into ``points``; the last one varies fastest.

    A place is empty where a parameter that is not there would stand at another than its first value.
    """

    def __init__(self, parameters: tuple[Parameter, ...], points: int) -> None:
        self._parameters, self._points = parameters, points
        self._sizes = [_range_grid_size(parameter.range, points) for parameter in parameters]
        self.size = math.prod(self._sizes)
        self._inside: dict[tuple[str, int], Grid] = {}  # of options, once they were asked about
        self._firsts: dict[str, list[int]] = {}  # places of the options of a choice, likewise

    def look(
        self, index: int, around: Parameters | None = None, breaks: Breaks | None = None
    ) -> tuple[Parameters | None, int]:
        """What stands at place ``index``, and the next one that may hold something: all between the two are empty.

        ``around``: the values of the spaces around this one. ``breaks``: whether the values up to a parameter, whatever
        comes behind it, leave a place empty.
        """
        point, known = Parameters(), dict(around or {})
        block, begin, rest = self.size, 0, index  # ``begin``: of the places that share the values so far
        for parameter, size in zip(self._parameters, self._sizes, strict=True):
            end, block = begin + block, block // size  # from here on those that share the next value, too
            place, rest = divmod(rest, block)
            if parameter.when is not None and not parameter.when.holds(known):
                if place:
                    return None, end
            else:
                is_there, value, following = self._value(parameter, place, known)
                if not is_there:
                    return None, begin + following * block
                point[parameter.name] = known[parameter.name] = value
            begin += place * block
            if breaks is not None and breaks(parameter.name, point):
                return None, begin + block
        return point, index + 1

    def _value(self, parameter: Parameter, place: int, known: Parameters) -> tuple[bool, Any, int]:
        """Whether something stands at a place of one parameter, what that is, and the next place."""
        range_ = parameter.range
        if not isinstance(range_, Choice):
            return True, range_.grid_value(place, self._points), place + 1
        if range_.is_flat:  # there may be a hundred thousand of them
            return True, range_.options[place].value, place + 1
        firsts = self._firsts.get(parameter.path)
        if firsts is None:
            sizes = (_option_grid_size(option, self._points) for option in range_.options)
            firsts = self._firsts[parameter.path] = list(accumulate(sizes, initial=0))
        number = bisect_right(firsts, place) - 1
        option, first = range_.options[number], firsts[number]
        if option.branch is None:
            return True, option.value, place + 1
        inside = self._inside.get((parameter.path, number))
        if inside is None:
            inside = self._inside[parameter.path, number] = Grid(option.branch, self._points)
        point, following = inside.look(place - first, known)
        return point is not None, {"_name": option.value, **(point or {})}, first + following


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
