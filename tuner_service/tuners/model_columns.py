"""A search space as columns of numbers, for models that want vectors.

A row has a column for every coordinate of the unit cube (``SearchSpace.encode``), with two differences: of an unordered
choice it holds the index of the option, so that a model can ask whether two are the same; and parameters of equal name
and range in sibling options (``eta`` of two boosters) share a column, so that what is learned of one holds for the
other. What is not there stands in the middle: rows that differ in it differ already in what brings it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner_service.domain.conditions import Condition, OneOf
from tuner_service.domain.ranges import (
    Choice,
    FloatRange,
    IntRange,
    NormalRange,
    Parameter,
    Permutation,
    QuantizedRange,
    Range,
    Subset,
)
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.domain.unit_cube import unit_of, value_at

Rows = NDArray[np.float64]  # one point a row
Demand = tuple[int, frozenset[int]]  # a column, and the options of it of which one is needed

MIDDLE = 0.5  # where a parameter stands that is not there
LEVELS_LIMIT = 10_000  # a finer grid is taken for continuous


@dataclass(slots=True, kw_only=True)
class _Column:
    """``levels``: how many equally wide cells it has, 0 for none. ``unordered``: it holds indices of options.

    ``demands``: it is there when all demands of one of these hold; always when the list is empty.
    """

    range: Range
    levels: int
    unordered: bool
    demands: list[tuple[Demand, ...]] = field(default_factory=list)


class Columns:
    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self._columns: list[_Column] = []
        self._of_coordinate = [0] * space.dimension
        self._coordinates: dict[str, tuple[int, ...]] = {}
        self._shared: dict[Any, int] = {}
        self._is_exact = True  # whether ``settle`` can tell by arithmetic alone what is there, and where
        self._add(space.parameters, group="", demands=(), known={})
        self.unordered: NDArray[np.bool_] = np.array([column.unordered for column in self._columns], dtype=bool)

    @property
    def width(self) -> int:
        return len(self._columns)

    # ── building ────────────────────────────────────────────────────────────────────────────────
    def _add(
        self,
        parameters: tuple[Parameter, ...],
        *,
        group: str,
        demands: tuple[Demand, ...],
        known: dict[str, tuple[int, Range]],
    ) -> None:
        """``known``: the columns and ranges of parameters that conditions may name."""
        known = dict(known)
        for parameter in parameters:
            needed = demands + self._demands_of(parameter.when, known)
            coordinates = tuple(sorted(self.space.columns_of([parameter.path])))
            self._coordinates[parameter.path] = coordinates
            range_ = parameter.range
            if isinstance(range_, Permutation | Subset):
                self._is_exact = False
            for part, coordinate in enumerate(coordinates):
                shown = range_.parts[part] if isinstance(range_, Permutation | Subset) else range_
                self._of_coordinate[coordinate] = self._column((group, parameter.name, range_, part), shown, needed)
            place = self._of_coordinate[coordinates[0]]
            known[parameter.name] = (place, range_)
            for number, option in enumerate(range_.options if isinstance(range_, Choice) else ()):
                if option.branch:
                    inside = (*needed, (place, frozenset({number})))
                    self._add(option.branch, group=parameter.path, demands=inside, known=known)

    def _column(self, key: Any, range_: Range, demands: tuple[Demand, ...]) -> int:
        place = self._shared.get(key)
        if place is None:
            place = self._shared[key] = len(self._columns)
            unordered = isinstance(range_, Choice) and not range_.ordered
            self._columns.append(_Column(range=range_, levels=_levels(range_), unordered=unordered))
        if demands:
            self._columns[place].demands.append(demands)
        return place

    def _demands_of(self, when: Condition | None, known: dict[str, tuple[int, Range]]) -> tuple[Demand, ...]:
        """What of the condition arithmetic on columns can tell; the rest makes ``settle`` go through parameters."""
        demands = []
        for part in when.parts if when is not None else ():
            place, range_ = known.get(part.name, (0, None)) if isinstance(part, OneOf) else (0, None)
            if isinstance(part, OneOf) and isinstance(range_, Choice) and not range_.ordered:
                keys = part.keys
                demands.append((place, frozenset(i for i, option in enumerate(range_.options) if option.key in keys)))
            else:
                self._is_exact = False
        return tuple(demands)

    # ── one point ───────────────────────────────────────────────────────────────────────────────
    def encode(self, parameters: Parameters) -> Rows | None:
        """Its row; None outside the space."""
        flat = self.space.flatten(parameters)
        point = self.space.encode(parameters) if flat is not None else None
        if flat is None or point is None:
            return None
        row = np.full(self.width, MIDDLE)
        for path in flat:
            for coordinate in self._coordinates[path]:
                place = self._of_coordinate[coordinate]
                column = self._columns[place]
                row[place] = int(point[coordinate] * column.levels) if column.unordered else point[coordinate]
        for place, column in enumerate(self._columns):
            if column.unordered and row[place] == MIDDLE:
                row[place] = 0.0  # it is not there, and has no middle
        return row

    def decode(self, row: Rows) -> Parameters:
        """The parameters of a row. Constraints are not looked at."""
        point = []
        for place in self._of_coordinate:
            column = self._columns[place]
            point.append((float(row[place]) + 0.5) / column.levels if column.unordered else float(row[place]))
        return self.space.decode(tuple(point))

    # ── many points ─────────────────────────────────────────────────────────────────────────────
    def settle(self, rows: Rows) -> Rows:
        """Every place moved to where ``encode`` has the value that it stands for; changes ``rows``."""
        for place, column in enumerate(self._columns):
            if not column.unordered:
                rows[:, place] = _settled(column, rows[:, place])
            if column.demands:
                there = np.zeros(len(rows), dtype=bool)
                for demands in column.demands:
                    there |= np.all([np.isin(rows[:, p], list(options)) for p, options in demands], axis=0)
                rows[~there, place] = 0.0 if column.unordered else MIDDLE
        if not self._is_exact:
            for index, row in enumerate(rows):
                exact = self.encode(self.decode(row))
                if exact is not None:
                    rows[index] = exact
        return rows

    def random(self, count: int, rng: np.random.Generator) -> Rows:
        """Independent draws, uniform in the unit cube."""
        rows = rng.random((count, self.width))
        for place, column in enumerate(self._columns):
            if column.unordered:
                rows[:, place] = np.minimum(np.floor(rows[:, place] * column.levels), column.levels - 1)
        return self.settle(rows)

    def neighbours(self, centres: Rows, count: int, rng: np.random.Generator, *, reach: float) -> Rows:
        """``count`` variations of each centre: one to about three columns moved, by about ``reach``."""
        rows = np.repeat(centres, count, axis=0)
        total, width = rows.shape
        portion = rng.uniform(1.0 / width, min(1.0, 3.0 / width), size=(total, 1))
        moved = rng.random((total, width)) < portion
        moved[np.arange(total), rng.integers(0, width, total)] = True
        for place, column in enumerate(self._columns):
            which = moved[:, place]
            size = int(which.sum())
            if column.unordered:
                rows[which, place] = rng.integers(0, column.levels, size)
                continue
            step = rng.normal(0.0, reach, size)
            if column.levels > 1:  # at least into the next cell
                least = 1.0 / column.levels
                step = np.where(np.abs(step) < least, np.copysign(least, step), step)
            rows[which, place] = _reflected(rows[which, place] + step)
        return self.settle(rows)


def _levels(range_: Range) -> int:
    match range_:
        case Choice():
            return len(range_.options)
        case FloatRange() | IntRange(log=False):
            return int(range_.size) if range_.size <= LEVELS_LIMIT else 0
        case _:
            return 0


def _settled(column: _Column, places: Rows) -> Rows:
    range_ = column.range
    if column.levels:
        cells: Rows = (np.minimum(np.floor(places * column.levels), column.levels - 1) + 0.5) / column.levels
        return cells
    if isinstance(range_, IntRange) and range_.log:
        first, last = math.log(range_.low - 0.5), math.log(range_.high + 0.5)
        values = np.clip(np.rint(np.exp(first + (last - first) * places)), range_.low, range_.high)
        middles: Rows = (0.5 * (np.log(values - 0.5) + np.log(values + 0.5)) - first) / (last - first)
        return middles
    if isinstance(range_, QuantizedRange) or (isinstance(range_, NormalRange) and range_.q is not None):
        return np.array([unit_of(range_, value_at(range_, float(place))) for place in places])
    return places


def _reflected(places: Rows) -> Rows:
    folded: Rows = np.abs(places)
    folded = np.where(folded > 1.0, 2.0 - folded, folded)
    return np.clip(folded, 0.0, 1.0)


def stacked(rows: Sequence[Rows], width: int) -> Rows:
    """One array of ``rows``, which may be none."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)
