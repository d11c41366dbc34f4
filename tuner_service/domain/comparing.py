"""Two spaces beside one another: the same, one inside the other, what fits of an earlier search."""

from __future__ import annotations

from typing import Any

from tuner_service.domain.ranges import (
    Choice,
    FloatRange,
    IntRange,
    NormalRange,
    Option,
    Parameter,
    Permutation,
    QuantizedRange,
    Range,
    Subset,
)
from tuner_service.domain.trial import Parameters

SCAN_LIMIT = 10_000  # values of a discrete range that are looked at one by one


def same(one: tuple[Parameter, ...], other: tuple[Parameter, ...]) -> bool:
    return covers(one, other) and covers(other, one)


def covers(outer: tuple[Parameter, ...], inner: tuple[Parameter, ...]) -> bool:
    """Whether ``outer`` surely holds all that ``inner`` holds: the same names, under the same conditions."""
    ranges = {parameter.name: parameter for parameter in outer}
    return len(outer) == len(inner) and all(
        parameter.name in ranges
        and ranges[parameter.name].when == parameter.when
        and _covers(ranges[parameter.name].range, parameter.range)
        for parameter in inner
    )


def adapted(parameters: tuple[Parameter, ...], given: Any, around: Parameters | None = None) -> Parameters | None:
    """What ``given`` is in a space of ``parameters``, as far as names and conditions go; None where one is missing.

    ``around``: the values of the spaces around this one, which its conditions may name.
    """
    if not isinstance(given, dict):
        return None
    fitting: Parameters = {}
    known = dict(around or {})
    for parameter in parameters:
        if parameter.when is not None and not parameter.when.holds(known):
            continue
        if parameter.name not in given and not _has_one_value(parameter.range):
            return None
        value = given[parameter.name] if parameter.name in given else _only_value(parameter.range)
        fitting[parameter.name] = known[parameter.name] = _adapted_value(parameter.range, value, known)
    return fitting


def _adapted_value(range_: Range, value: Any, around: Parameters) -> Any:
    index = range_.index_of(value) if isinstance(range_, Choice) else None
    if index is None or not isinstance(range_, Choice) or range_.options[index].branch is None:
        return value
    inner = adapted(range_.options[index].branch or (), value, around)
    return value if inner is None else {"_name": range_.options[index].value, **inner}


def _has_one_value(range_: Range) -> bool:
    return len(range_.options) == 1 if isinstance(range_, Choice) else range_.grid_size(2) == 1


def _only_value(range_: Range) -> Any:
    """Of a range that has one; it may be null."""
    if not isinstance(range_, Choice):
        return range_.grid_value(0, 1)
    return range_.options[0].value if range_.options[0].branch is None else {"_name": range_.options[0].value}


def _covers(outer: Range, inner: Range) -> bool:
    if outer == inner:
        return True
    match outer, inner:
        case Choice(), Choice():
            return all(_has_option(outer, option) for option in inner.options)
        case FloatRange(step=None), FloatRange() | QuantizedRange() | IntRange():
            return outer.low <= inner.low and inner.high <= outer.high
        case NormalRange(q=None, log=False), FloatRange() | QuantizedRange() | NormalRange() | IntRange():
            return True
        case NormalRange(q=None, log=True), FloatRange() | QuantizedRange():
            return inner.low > 0
        case Subset(), Subset():
            return (
                [option.key for option in outer.options] == [option.key for option in inner.options]
                and outer.least <= inner.least
                and inner.most <= outer.most
            )
        case Permutation(), Permutation():
            return {option.key for option in outer.options} == {option.key for option in inner.options}
        case Choice() | Permutation() | Subset(), _:
            return False
        case _, IntRange() | QuantizedRange() | FloatRange(step=float()):
            count = inner.grid_size(1)
            return count <= SCAN_LIMIT and all(outer.contains(inner.grid_value(i, 1)) for i in range(count))
        case _:
            return False


def _has_option(outer: Choice, option: Option) -> bool:
    for own in outer.options:
        if own.key == option.key and (own.branch is None) == (option.branch is None):
            return covers(own.branch or (), option.branch or ())
    return False
