"""A search space as columns of numbers, for models that want vectors.

Every parameter that may be there is a column, with a place in [0, 1] or, for an unordered choice, the index of its
option. Parameters of equal name and range in sibling options (``eta`` of two boosters) share one column, so that what is
learned of one holds for the other. What is not there stands in the middle of its column: points that differ in it
differ already in the choice that brings it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner_service.domain.ranges import Choice, FloatRange, IntRange, NormalRange, Parameter, QuantizedRange, Range
from tuner_service.domain.search_space import Flat, SearchSpace
from tuner_service.domain.trial import Parameters

Rows = NDArray[np.float64]  # one point a row, one column a parameter

MIDDLE = 0.5  # where a parameter stands that is not there
PORTION_MARGIN = 1e-6  # of normal ranges, whose ends are infinite
LEVELS_LIMIT = 10_000  # a finer grid is taken for continuous


@dataclass(slots=True, kw_only=True)
class Column:
    """``levels``: how many values a grid has, 0 for a continuous one. ``unordered``: places are indices of options.

    ``conditions`` are (column, option) pairs; it is there when one of them holds, or always when there are none.
    """

    range: Range
    levels: int
    unordered: bool
    conditions: list[tuple[int, int]] = field(default_factory=list)


def portion_of(range_: Range, value: Any) -> float:
    """The place of ``value`` in [0, 1]; equal steps are equally far apart (in the logarithm where the range says so)."""
    match range_:
        case Choice():
            return 0.0 if len(range_.options) == 1 else value / (len(range_.options) - 1)
        case NormalRange():
            return min(max(range_.portion(value), PORTION_MARGIN), 1 - PORTION_MARGIN)
        case IntRange(log=True) | FloatRange(log=True) | QuantizedRange(log=True):
            low, high = math.log(range_.low), math.log(range_.high)
            return 0.0 if high <= low else min(max((math.log(max(value, range_.low)) - low) / (high - low), 0.0), 1.0)
        case _:
            width = range_.high - range_.low
            return 0.0 if width <= 0 else min(max((value - range_.low) / width, 0.0), 1.0)


def value_at(range_: Range, portion: float) -> Any:
    """The value nearest to that place; of a choice the index of its option."""
    match range_:
        case Choice():
            return round(portion * (len(range_.options) - 1))
        case NormalRange():
            return range_.quantile(min(max(portion, PORTION_MARGIN), 1 - PORTION_MARGIN))
        case FloatRange(step=None, log=log) | IntRange(step=1, log=log) | QuantizedRange(log=log):
            low, high = range_.low, range_.high
            if log:
                drawn = math.exp(math.log(low) + portion * (math.log(high) - math.log(low)))
            else:
                drawn = low + portion * (high - low)
            if isinstance(range_, QuantizedRange):
                return range_.project(drawn)
            return min(max(round(drawn) if isinstance(range_, IntRange) else drawn, low), high)
        case _:
            return range_.value_at(round(portion * (range_.size - 1)))


class Columns:
    """The columns of one space. ``single`` parameters, which have one value only, have none."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.columns: list[Column] = []
        self.index: dict[str, int] = {}  # path -> column
        self._shared: dict[tuple[str, str, Range], int] = {}
        self._add(space.parameters, group="", condition=None)
        self.unordered = np.array([c.unordered for c in self.columns], dtype=bool)

    def _add(self, parameters: tuple[Parameter, ...], *, group: str, condition: tuple[int, int] | None) -> None:
        for parameter in parameters:
            if parameter.range.size == 1 if not isinstance(parameter.range, Choice) else False:
                continue
            place = self._column(parameter, group, condition)
            self.index[parameter.path] = place
            if isinstance(parameter.range, Choice):
                for number, option in enumerate(parameter.range.options):
                    if option.branch is not None:
                        self._add(option.branch, group=parameter.path, condition=(place, number))

    def _column(self, parameter: Parameter, group: str, condition: tuple[int, int] | None) -> int:
        key = (group, parameter.name, parameter.range)
        place = self._shared.get(key)
        if place is None:
            range_ = parameter.range
            size = len(range_.options) if isinstance(range_, Choice) else range_.size
            place = self._shared[key] = len(self.columns)
            self.columns.append(
                Column(
                    range=range_,
                    levels=int(size) if size <= LEVELS_LIMIT else 0,
                    unordered=isinstance(range_, Choice) and not range_.ordered,
                )
            )
        if condition is not None:
            self.columns[place].conditions.append(condition)
        return place

    # ── points ──────────────────────────────────────────────────────────────────────────────────
    def encode(self, flat: Flat) -> Rows:
        """One row, from what ``SearchSpace.flatten`` gives."""
        row = np.full(len(self.columns), MIDDLE)
        for path, value in flat.items():
            place = self.index.get(path)
            if place is not None:
                column = self.columns[place]
                row[place] = value if column.unordered else portion_of(column.range, value)
        return row

    def decode(self, row: Rows) -> Parameters:
        """The parameters of a row; what ``encode`` made of them is the row again, after ``settle``."""

        def choose(path: str, range_: Range) -> Any:
            place = self.index.get(path)
            if place is None:
                return 0 if isinstance(range_, Choice) else range_.grid_value(0, 1)
            return int(row[place]) if self.columns[place].unordered else value_at(range_, float(row[place]))

        return self.space.build(choose)

    def settle(self, rows: Rows) -> Rows:
        """Every place moved to a value that there is, and to the middle where its parameter is not there."""
        for place, column in enumerate(self.columns):
            if not column.unordered and column.levels > 1:
                rows[:, place] = self._settled(column, rows[:, place])
            if column.conditions:
                there = np.zeros(len(rows), dtype=bool)
                for parent, option in column.conditions:
                    there |= rows[:, parent] == option
                rows[~there, place] = MIDDLE
        return rows

    def _settled(self, column: Column, portions: Rows) -> Rows:
        range_ = column.range
        if isinstance(range_, IntRange) and range_.log:
            low, high = math.log(range_.low), math.log(range_.high)
            values = np.clip(np.rint(np.exp(low + portions * (high - low))), range_.low, range_.high)
            settled: Rows = (np.log(values) - low) / (high - low)
            return settled
        if isinstance(range_, QuantizedRange):
            return np.array([portion_of(range_, value_at(range_, float(p))) for p in portions])
        return np.rint(portions * (column.levels - 1)) / (column.levels - 1)

    def random(self, count: int, rng: np.random.Generator) -> Rows:
        """Independent draws, uniform in every column."""
        rows = rng.random((count, len(self.columns)))
        for place, column in enumerate(self.columns):
            if column.unordered:
                rows[:, place] = np.minimum(np.floor(rows[:, place] * column.levels), column.levels - 1)
        return self.settle(rows)

    def neighbours(self, centres: Rows, count: int, rng: np.random.Generator, *, reach: float) -> Rows:
        """``count`` variations of each centre: some columns moved, by about ``reach``; at least one."""
        rows = np.repeat(centres, count, axis=0)
        total, width = rows.shape
        moved = rng.random((total, width)) < rng.uniform(1.0 / width, min(1.0, 3.0 / width), size=(total, 1))
        moved[np.arange(total), rng.integers(0, width, total)] = True
        for place, column in enumerate(self.columns):
            which = moved[:, place]
            size = int(which.sum())
            if column.unordered:
                rows[which, place] = rng.integers(0, column.levels, size)
                continue
            step = rng.normal(0.0, reach, size)
            if column.levels > 1:  # at least to the next value
                least = 1.0 / (column.levels - 1)
                step = np.where(np.abs(step) < least, np.copysign(least, step), step)
            rows[which, place] = _reflected(rows[which, place] + step)
        return self.settle(rows)


def _reflected(portions: Rows) -> Rows:
    folded: Rows = np.abs(portions)
    folded = np.where(folded > 1.0, 2.0 - folded, folded)
    return np.clip(folded, 0.0, 1.0)
