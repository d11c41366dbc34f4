"""A search space: what may be chosen. Two ways to write it, NNI's and the long one, mixed freely.

    lr:        {_type: loguniform, _value: [0.0001, 0.1]}
    batch:     {type: int, low: 16, high: 256, log: true}
    optimizer: {_type: choice, _value: [sgd, adam]}
    layer:     {_type: choice, _value: [{_name: none}, {_name: conv, kernel: {_type: choice, _value: [3, 5]}}]}

``parse_search_space`` (domain/space_parsing.py) makes it from such a dict.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from tuner_service.domain.ranges import Choice, Option, Parameter, Range, value_key
from tuner_service.domain.space_parsing import parse_parameters
from tuner_service.domain.trial import Parameters

Flat = dict[str, Any]  # path -> a value; of a choice, the index of its option


def parameters_key(parameters: Parameters) -> str:
    """One text for equal parameters: the order of keys and 1 against 1.0 make no difference."""
    return value_key(parameters)


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Its parameters stand in the order in which they were written. ``raw`` is what was written."""

    parameters: tuple[Parameter, ...]
    raw: dict[str, Any]

    @cached_property
    def size(self) -> float:
        """How many different sets of parameters there are; ``math.inf`` with a continuous one."""
        return _size(self.parameters)

    @cached_property
    def is_conditional(self) -> bool:
        """Whether some parameter is there only with some option of another."""
        return any(
            option.branch is not None
            for parameter in self.parameters
            if isinstance(parameter.range, Choice)
            for option in parameter.range.options
        )

    def build(self, choose: Callable[[str, Range], Any]) -> Parameters:
        """Parameters made by asking ``choose(path, range)`` for each that is there, in order.

        For a choice it gives the index of an option; a nested option's own parameters are asked for next.
        """
        return _build(self.parameters, choose)

    def sample(self, rng: random.Random) -> Parameters:
        """Independent draws from every range, which is uniform where the range is."""
        return self.build(lambda _, range_: range_.sample(rng))

    def flatten(self, parameters: Parameters) -> Flat | None:
        """What ``choose`` must have answered for ``build`` to give ``parameters``; None outside the space."""
        flat: Flat = {}
        return flat if _flatten(self.parameters, parameters, flat) else None

    def contains(self, parameters: Parameters) -> bool:
        return self.flatten(parameters) is not None

    def grid_size(self, points: int) -> int:
        """How many points the grid has when a continuous parameter is divided into ``points``."""
        return _grid_size(self.parameters, points)

    def grid_point(self, index: int, points: int) -> Parameters:
        """Point ``index`` of the grid; the last parameter varies fastest."""
        return _grid_point(self.parameters, index, points)


def parse_search_space(data: Any) -> SearchSpace:
    """The space that ``data`` describes. InputError names every fault, with pointers relative to ``data``."""
    return SearchSpace(parameters=parse_parameters(data), raw=data)


def _size(parameters: tuple[Parameter, ...]) -> float:
    sizes = [_range_size(parameter.range) for parameter in parameters]
    return math.inf if math.inf in sizes else math.prod(sizes)


def _range_size(range_: Range) -> float:
    if not isinstance(range_, Choice):
        return range_.size
    sizes = [1 if option.branch is None else _size(option.branch) for option in range_.options]
    return math.inf if math.inf in sizes else sum(sizes)


def _build(parameters: tuple[Parameter, ...], choose: Callable[[str, Range], Any]) -> Parameters:
    built: Parameters = {}
    for parameter in parameters:
        chosen = choose(parameter.path, parameter.range)
        if isinstance(parameter.range, Choice):
            chosen = _option_value(parameter.range.options[chosen], choose)
        built[parameter.name] = chosen
    return built


def _option_value(option: Option, choose: Callable[[str, Range], Any]) -> Any:
    if option.branch is None:
        return option.value
    return {"_name": option.value, **_build(option.branch, choose)}


def _flatten(parameters: tuple[Parameter, ...], given: Any, flat: Flat) -> bool:
    if not isinstance(given, dict) or len(given) != len(parameters):
        return False
    for parameter in parameters:
        if parameter.name not in given or not _flatten_one(parameter, given[parameter.name], flat):
            return False
    return True


def _flatten_one(parameter: Parameter, value: Any, flat: Flat) -> bool:
    if not isinstance(parameter.range, Choice):
        flat[parameter.path] = value
        return parameter.range.contains(value)
    index = parameter.range.index_of(value)
    if index is None:
        return False
    flat[parameter.path] = index
    branch = parameter.range.options[index].branch
    if branch is None:
        return True
    return _flatten(branch, {name: item for name, item in value.items() if name != "_name"}, flat)


def _grid_size(parameters: tuple[Parameter, ...], points: int) -> int:
    return math.prod(_range_grid_size(parameter.range, points) for parameter in parameters)


def _range_grid_size(range_: Range, points: int) -> int:
    if not isinstance(range_, Choice):
        return range_.grid_size(points)
    return sum(_option_grid_size(option, points) for option in range_.options)


def _option_grid_size(option: Option, points: int) -> int:
    return 1 if option.branch is None else _grid_size(option.branch, points)


def _grid_point(parameters: tuple[Parameter, ...], index: int, points: int) -> Parameters:
    chosen: list[tuple[str, Any]] = []
    for parameter in reversed(parameters):
        index, digit = divmod(index, _range_grid_size(parameter.range, points))
        chosen.append((parameter.name, _range_grid_value(parameter.range, digit, points)))
    return dict(reversed(chosen))


def _range_grid_value(range_: Range, digit: int, points: int) -> Any:
    if not isinstance(range_, Choice):
        return range_.grid_value(digit, points)
    firsts = list(accumulate((_option_grid_size(option, points) for option in range_.options), initial=0))
    place = bisect_right(firsts, digit) - 1
    option = range_.options[place]
    if option.branch is None:
        return option.value
    return {"_name": option.value, **_grid_point(option.branch, digit - firsts[place], points)}
