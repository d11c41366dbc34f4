"""Points of a unit cube that stand for parameters, and back.

A number has one coordinate, its place in its range (in the logarithm where that is logarithmic, the quantile where it
is normal). A discrete value has a cell of the coordinate to itself, and is encoded as the cell's middle: cells are
equally wide, but of logarithmic and quantised ranges, where they are as wide as the value is likely. A choice has one
coordinate, and so have the parameters of each of its nested spaces; a permutation or a subset has one for each option.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from tuner_service.domain.ranges import (
    Choice,
    FloatRange,
    IntRange,
    NormalRange,
    NumericRange,
    Parameter,
    Permutation,
    QuantizedRange,
    Range,
    Subset,
)

MIDDLE = 0.5
NEIGHBOURS = 64  # floats on both sides of a computed coordinate that are tried for the exact one
TINIEST = 2.0**-53  # normal ranges end at these quantiles: at 0 and 1 they are infinite


@dataclass(slots=True, kw_only=True)
class Layout:
    """Which coordinates belong to which path: the first, and what stands there."""

    places: dict[str, tuple[int, Range]] = field(default_factory=dict)
    dimension: int = 0


def layout(parameters: tuple[Parameter, ...]) -> Layout:
    found = Layout()
    _place(parameters, found)
    return found


def encode(places: Layout, flat: dict[str, Any]) -> tuple[float, ...]:
    point = [MIDDLE] * places.dimension
    for path, value in flat.items():
        start, range_ = places.places[path]
        match range_:
            case Choice():
                point[start] = _cell(value, len(range_.options))
            case Permutation():
                point[start : start + len(range_.options)] = range_.to_parts(value)
            case Subset():
                point[start : start + len(range_.options)] = [0.25 + 0.5 * part for part in range_.to_parts(value)]
            case _:
                point[start] = unit_of(range_, value)
    return tuple(point)


def decode(places: Layout, path: str, range_: Range, point: Sequence[float]) -> Any:
    """What ``SearchSpace.build`` asks for."""
    start, _ = places.places[path]
    match range_:
        case Choice():
            return _index(point[start], len(range_.options))
        case Permutation() | Subset():
            return range_.from_parts(point[start : start + len(range_.options)])
        case _:
            return value_at(range_, point[start])


def value_at(range_: NumericRange, u: float) -> Any:
    """The number at ``u`` in [0, 1]."""
    match range_:
        case FloatRange() if range_.size != math.inf:
            return range_.value_at(_index(u, int(range_.size)))
        case FloatRange(log=True):
            first, last = math.log(range_.low), math.log(range_.high)
            return min(max(math.exp(first + (last - first) * u), range_.low), range_.high)
        case FloatRange():
            return min(max(range_.low + (range_.high - range_.low) * u, range_.low), range_.high)
        case IntRange(log=True):
            first, last = math.log(range_.low - 0.5), math.log(range_.high + 0.5)
            return min(max(round(math.exp(first + (last - first) * u)), range_.low), range_.high)
        case IntRange():
            return range_.value_at(_index(u, int(range_.size)))
        case QuantizedRange(log=True):
            first, last = math.log(range_.low), math.log(range_.high)
            return range_.project(min(max(math.exp(first + (last - first) * u), range_.low), range_.high))
        case QuantizedRange():
            return range_.project(range_.low + (range_.high - range_.low) * u)
        case _:
            return range_.quantile(min(max(u, TINIEST), 1 - TINIEST))


def columns(places: Layout, path: str) -> range:
    """The coordinates of the parameter at ``path``."""
    start, range_ = places.places[path]
    return range(start, start + (len(range_.options) if isinstance(range_, Permutation | Subset) else 1))


def _place(parameters: tuple[Parameter, ...], found: Layout) -> None:
    for parameter in parameters:
        range_ = parameter.range
        found.places[parameter.path] = (found.dimension, range_)
        found.dimension += len(range_.options) if isinstance(range_, Permutation | Subset) else 1
        if isinstance(range_, Choice):
            for option in range_.options:
                _place(option.branch or (), found)


def _cell(index: int, count: int) -> float:
    return (index + 0.5) / count


def _index(u: float, count: int) -> int:
    return min(max(int(u * count), 0), count - 1)


def unit_of(range_: NumericRange, value: float) -> float:
    """The place of ``value`` in [0, 1]; the inverse of ``value_at``."""
    match range_:
        case FloatRange(step=None) if range_.low < range_.high:
            return _exact(range_, value, _portion(value, range_.low, range_.high, log=range_.log))
        case FloatRange():
            return _cell(range_.index_of(value), int(range_.size))
        case IntRange(log=False):
            return _cell((int(value) - range_.low) // range_.step, int(range_.size))
        case IntRange():
            return _between(value - 0.5, value + 0.5, range_.low - 0.5, range_.high + 0.5, log=True)
        case QuantizedRange():
            return _quantized_coordinate(range_, value)
        case NormalRange(q=None):
            return _exact(range_, value, range_.portion(value))
        case _:
            return _normal_cell(range_, value)


def _quantized_coordinate(range_: QuantizedRange, value: float) -> float:
    """The middle of what is rounded and clipped to ``value``."""
    if range_.low == range_.high:
        return MIDDLE
    index = range_.index_of(value)
    below, above = (range_.first + index - 0.5) * range_.q, (range_.first + index + 0.5) * range_.q
    return _between(max(below, range_.low), min(above, range_.high), range_.low, range_.high, log=range_.log)


def _normal_cell(range_: NormalRange, value: float) -> float:
    q, spread = range_.q or 0.0, NormalDist(range_.mu, range_.sigma)
    ends = [value - q / 2, value + q / 2]
    if range_.log:
        ends = [math.log(end) if end > 0 else -math.inf for end in ends]
    below, above = (0.0 if end == -math.inf else spread.cdf(end) for end in ends)
    return min(max((below + above) / 2, TINIEST), 1 - TINIEST)


def _between(below: float, above: float, low: float, high: float, *, log: bool) -> float:
    return (_portion(below, low, high, log=log) + _portion(above, low, high, log=log)) / 2


def _portion(value: float, low: float, high: float, *, log: bool) -> float:
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else MIDDLE


def _exact(range_: NumericRange, value: float, near: float) -> float:
    """The float nearest to ``near`` that stands for exactly ``value``; ``near`` itself where none does."""
    below = above = near
    for _ in range(NEIGHBOURS):
        for u in (below, above):
            if value_at(range_, u) == value:
                return u
        below, above = max(math.nextafter(below, 0.0), 0.0), min(math.nextafter(above, 1.0), 1.0)
    return near
