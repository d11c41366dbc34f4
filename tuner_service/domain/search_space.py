"""A search space: what may be chosen. Two ways to write it, NNI's and the long one, mixed freely.

    lr:        {_type: loguniform, _value: [0.0001, 0.1]}
    batch:     {type: int, low: 16, high: 256, log: true}
    optimizer: {_type: choice, _value: [sgd, adam]}
    momentum:  {type: float, low: 0, high: 1, when: {optimizer: sgd}}
    layer:     {_type: choice, _value: [{_name: none}, {_name: conv, kernel: {_type: choice, _value: [3, 5]}}]}
    constraints: ["batch * lr <= 4"]

``parse_search_space`` (domain/space_parsing.py) makes it from such a dict.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trials.wire.values import value_key, written_alike
from tuner_service.domain import comparing, counting, unit_cube
from tuner_service.domain.errors import Fault, InputError, TemporarilyUnableError
from tuner_service.domain.expressions import Expression
from tuner_service.domain.ranges import Choice, Option, Parameter, Permutation, Range, Subset
from tuner_service.domain.space_parsing import CONSTRAINTS, parse_parameters
from tuner_service.domain.trial import Parameters

ACCEPTED_WITHIN = 10_000  # draws: a space of which none keeps the constraints is refused
SAMPLE_LIMIT = 50 * ACCEPTED_WITHIN  # draws of an accepted one; far more, for what is rare is also late now and then
GRID_SCAN_LIMIT = 1_000_000  # places of a grid of which some are empty; looking through more would take minutes
GRID_WORK_LIMIT = 20_000_000  # parameters and parts of expressions, times places: half a minute, in one answer
# path -> a value; of a choice the index of its option, of a permutation or a subset the indices of its options
Flat = dict[str, Any]


def parameters_key(parameters: Parameters) -> str:
    """One text for equal parameters: the order of keys and 1 against 1.0 make no difference."""
    return value_key(parameters)


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Its parameters stand as they were written, behind those that their conditions name. ``raw``: what was written."""

    parameters: tuple[Parameter, ...]
    raw: dict[str, Any]
    constraints: tuple[Expression, ...] = ()

    @cached_property
    def size(self) -> float:
        """How many different sets of parameters there are; ``math.inf`` with a continuous one.

        With conditions or constraints on more than ``counting.COUNT_LIMIT`` of them it is an upper bound.
        """
        bound, places = counting.size(self.parameters), self.grid_size(1)
        if bound == math.inf or not self.has_empty_places or places > counting.COUNT_LIMIT:
            return bound
        return sum(self.grid_point(index, 1) is not None for index in range(places))

    @cached_property
    def has_empty_places(self) -> bool:
        """Whether conditions or constraints may leave places of the grid empty."""
        return bool(self.constraints) or counting.has_conditions(self.parameters)

    @cached_property
    def is_conditional(self) -> bool:
        """Whether some parameter is there only with some value of another."""
        return any(
            parameter.when is not None
            or (isinstance(parameter.range, Choice) and any(o.branch is not None for o in parameter.range.options))
            for parameter in self.parameters
        )

    def build(self, choose: Callable[[str, Range], Any]) -> Parameters:
        """Parameters made by asking ``choose(path, range)`` for each that is there, in order.

        For a choice it gives the index of an option, for a permutation or a subset indices of its options; a nested
        option's own parameters are asked for next. Constraints are not looked at.
        """
        return _build(self.parameters, choose, {})

    def sample(self, rng: random.Random) -> Parameters:
        """Independent draws from every range, which is uniform where the range is; drawn again outside a constraint.

        TemporarilyUnableError when SAMPLE_LIMIT draws gave nothing that keeps the constraints: by a draw nobody can
        tell that there is nothing, so it pauses an experiment and does not end it.
        """
        parameters = self._drawn(rng, SAMPLE_LIMIT)
        if parameters is None:
            why = f"none of {SAMPLE_LIMIT} random draws keeps all {CONSTRAINTS} of the search space"
            raise TemporarilyUnableError(f"{why}; narrow its ranges to where they hold")
        return parameters

    def _drawn(self, rng: random.Random, limit: int) -> Parameters | None:
        for _ in range(limit):
            parameters = self.build(lambda _, range_: range_.sample(rng))
            if self.admits(parameters):
                return parameters
        return None

    def admits(self, parameters: Parameters) -> bool:
        """Whether every constraint holds. One that names a parameter which is not there does."""
        return all(constraint.holds(parameters, absent=True) for constraint in self.constraints)

    def flatten(self, parameters: Parameters) -> Flat | None:
        """What ``choose`` must have answered for ``build`` to give ``parameters``; None outside the space."""
        flat: Flat = {}
        inside = _flatten(self.parameters, parameters, flat, {}) and self.admits(parameters)
        return flat if inside else None

    def fitting(self, parameters: Parameters) -> Flat:
        """What of ``parameters`` each parameter of this space can take, whatever the others are; as ``flatten`` has it.

        All of it where they lie inside. Conditions and constraints are not looked at.
        """
        flat: Flat = {}
        _fit(self.parameters, parameters, flat)
        return flat

    def contains(self, parameters: Parameters) -> bool:
        return self.flatten(parameters) is not None

    # ── the grid ────────────────────────────────────────────────────────────────────────────────
    def grid_fault(self, points: int) -> str:
        """Why nobody can go through its grid; empty where it can be done."""
        if not self.has_empty_places:
            return ""
        places = self.grid_size(points)
        if places > GRID_SCAN_LIMIT:
            return f"its grid has more than {GRID_SCAN_LIMIT} places, and conditions or constraints leave some empty"
        looked_at = counting.looked_at(self.parameters) + sum(constraint.size for constraint in self.constraints)
        if places * looked_at <= GRID_WORK_LIMIT:
            return ""
        return (
            f"its grid has {places} places, of which conditions or constraints leave some empty, and to go through "
            f"them, {looked_at} parameters and parts of expressions each, would take minutes: at most "
            f"{GRID_WORK_LIMIT} can be looked at. Narrow the ranges, give fewer points, or write shorter constraints"
        )

    def grid_size(self, points: int) -> int:
        """How many places the grid has when a continuous parameter is divided into ``points``."""
        return counting.grid_size(self.parameters, points)

    def grid_point(self, index: int, points: int) -> Parameters | None:
        """What stands at place ``index`` of the grid; the last parameter varies fastest.

        None where conditions or constraints leave a place empty; without any, every place holds a point.
        """
        point, _ = self._grid(points).look(index, breaks=self._breaks if self.constraints else None)
        return point

    def next_grid_point(self, index: int, points: int) -> tuple[int, Parameters] | None:
        """The first place from ``index`` on that is not empty, and what stands there; None where there is none.

        What the first parameters leave empty whatever the others are is passed over at once.
        """
        grid = self._grid(points)
        while index < grid.size:
            point, following = grid.look(index, breaks=self._breaks if self.constraints else None)
            if point is not None:
                return index, point
            index = following
        return None

    def _grid(self, points: int) -> counting.Grid:
        if points not in self._grids:
            self._grids[points] = counting.Grid(self.parameters, points)
        return self._grids[points]

    @cached_property
    def _grids(self) -> dict[int, counting.Grid]:
        return {}

    def _breaks(self, name: str, point: Parameters) -> bool:
        """Whether the values up to parameter ``name`` break a constraint, of all whose parameters it is the last."""
        return any(not constraint.holds(point, absent=True) for constraint in self._decided_by.get(name, ()))

    @cached_property
    def _decided_by(self) -> dict[str, list[Expression]]:
        order = {parameter.name: place for place, parameter in enumerate(self.parameters)}
        found: dict[str, list[Expression]] = {}
        for constraint in self.constraints:
            found.setdefault(max(constraint.names, key=lambda name: order[name]), []).append(constraint)
        return found

    # ── the unit cube ───────────────────────────────────────────────────────────────────────────
    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Of all parameters, as ``Parameter`` has them: those of a nested space stand behind the option that has it."""
        return tuple(self._layout.places)

    @cached_property
    def _layout(self) -> unit_cube.Layout:
        return unit_cube.layout(self.parameters)

    @property
    def dimension(self) -> int:
        """Coordinates of a point in the unit cube: one a parameter, of all options of choices; one an item of lists."""
        return self._layout.dimension

    def encode(self, parameters: Parameters) -> tuple[float, ...] | None:
        """Its point in the unit cube, each coordinate in [0, 1]; 0.5 for what is not there. None outside the space.

        ``decode(encode(x)) == x`` for all discrete values and for all that ``sample`` and ``decode`` give. A number
        that a person typed may lie between two neighbours that floats in [0, 1] can tell apart: then the nearer.
        """
        flat = self.flatten(parameters)
        return None if flat is None else unit_cube.encode(self._layout, flat)

    def decode(self, point: tuple[float, ...]) -> Parameters:
        """The parameters of a point; the whole cube stands for the whole space. Constraints are not looked at."""
        return self.build(lambda path, range_: self.decode_one(path, range_, point))

    def decode_one(self, path: str, range_: Range, point: tuple[float, ...]) -> Any:
        """What ``choose`` of ``build`` has to answer for the parameters of ``point``."""
        return unit_cube.decode(self._layout, path, range_, point)

    def columns_of(self, paths: Iterable[str]) -> frozenset[int]:
        """The coordinates of points that stand for the parameters at ``paths``."""
        return frozenset(column for path in paths for column in unit_cube.columns(self._layout, path))

    # ── beside another ──────────────────────────────────────────────────────────────────────────
    def same_as(self, other: SearchSpace) -> bool:
        """Whether both hold the same parameters, however they were written and in whatever order."""
        return comparing.same(self.parameters, other.parameters) and self._constraint_set == other._constraint_set

    def covers(self, other: SearchSpace) -> bool:
        """Whether everything in ``other`` surely lies in this one. False also where that cannot be told."""
        return comparing.covers(self.parameters, other.parameters) and self._constraint_set <= other._constraint_set

    def adapted(self, parameters: Parameters) -> Parameters | None:
        """Parameters of another space as this one has them, for a warm start; None where they do not fit.

        What this space does not know is left out, and a parameter with one value only is filled in.
        """
        fitting = comparing.adapted(self.parameters, parameters)
        return fitting if fitting is not None and self.contains(fitting) else None

    @property
    def _constraint_set(self) -> frozenset[str]:
        return frozenset(constraint.source for constraint in self.constraints)


def alike(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Whether both give trials the same values of the same types: 1 and 1.0 differ, but not as the end of a range.

    A browser writes 1.0 as 1. None is like nothing else; what cannot be read is like what is written as it is.
    """
    if written_alike(one, other):
        return True
    if not one or not other or value_key(one) != value_key(other):
        return False
    try:
        found, others = (parse_parameters(space) for space in (one, other))
    except InputError:
        return False
    return all(sorted(map(repr, mine)) == sorted(map(repr, theirs)) for mine, theirs in zip(found, others, strict=True))


def parse_search_space(data: Any) -> SearchSpace:
    """The space that ``data`` describes. InputError names every fault, with pointers relative to ``data``.

    The empty one has one point, without parameters: that of a training without a search.
    """
    if data == {}:
        return SearchSpace(parameters=(), raw={})
    parameters, constraints = parse_parameters(data)
    space = SearchSpace(parameters=parameters, raw=data, constraints=constraints)
    if constraints and space._drawn(random.Random(0), ACCEPTED_WITHIN) is None:  # noqa: S311, SLF001  # its own module
        message = f"none of {ACCEPTED_WITHIN} random draws keeps all of these; narrow the ranges to where they hold"
        raise InputError([Fault(pointer=f"/{CONSTRAINTS}", message=message)])
    return space


def _build(
    parameters: tuple[Parameter, ...], choose: Callable[[str, Range], Any], around: dict[str, Any]
) -> Parameters:
    """``around``: the values of the spaces around this one, which conditions may name."""
    built: Parameters = {}
    for parameter in parameters:
        if parameter.when is not None and not parameter.when.holds(around | built):
            continue
        chosen = choose(parameter.path, parameter.range)
        match parameter.range:
            case Choice():
                option = parameter.range.options[chosen]
                chosen = option.value if option.branch is None else _nested(option, choose, around | built)
            case Permutation() | Subset():
                chosen = parameter.range.value_of(chosen)
        built[parameter.name] = chosen
    return built


def _nested(option: Option, choose: Callable[[str, Range], Any], around: dict[str, Any]) -> Parameters:
    return {"_name": option.value, **_build(option.branch or (), choose, around)}


def _flatten(parameters: tuple[Parameter, ...], given: Any, flat: Flat, around: dict[str, Any]) -> bool:
    if not isinstance(given, dict):
        return False
    known, used = dict(around), 0
    for parameter in parameters:
        if parameter.when is not None and not parameter.when.holds(known):
            continue
        if parameter.name not in given or not _flatten_one(parameter, given[parameter.name], flat, known):
            return False
        known[parameter.name] = given[parameter.name]
        used += 1
    return used == len(given)


def _flatten_one(parameter: Parameter, value: Any, flat: Flat, around: dict[str, Any]) -> bool:
    range_ = parameter.range
    if isinstance(range_, Choice):
        return _flatten_choice(range_, parameter.path, value, flat=flat, around=around)
    if isinstance(range_, Permutation | Subset):
        flat[parameter.path] = indices = range_.flat_of(value)
        return indices is not None
    flat[parameter.path] = value
    return range_.contains(value)


def _flatten_choice(range_: Choice, path: str, value: Any, *, flat: Flat, around: dict[str, Any]) -> bool:
    index = range_.index_of(value)
    if index is None:
        return False
    flat[path] = index
    branch = range_.options[index].branch
    if branch is None:
        return True
    return _flatten(branch, {name: item for name, item in value.items() if name != "_name"}, flat, around)


def _fit(parameters: tuple[Parameter, ...], given: Parameters, flat: Flat) -> None:
    for parameter in parameters:
        range_, one = parameter.range, Flat()
        if parameter.name not in given:
            continue
        value = given[parameter.name]
        if not isinstance(range_, Choice):
            if _flatten_one(parameter, value, one, {}):
                flat.update(one)
        elif (index := range_.index_of(value)) is not None:
            flat[parameter.path] = index
            _fit(range_.options[index].branch or (), value, flat)
