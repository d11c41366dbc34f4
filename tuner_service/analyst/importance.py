"""How much each parameter matters, in plain Python: a few milliseconds for thousands of trials, without Optuna.

PED-ANOVA (Watanabe, Bansal and Hutter, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", 2023), as Optuna computes it: how differently a parameter is distributed among the best tenth of the trials.
Both distributions are estimated by kernels on a grid of GRID_STEPS, so that the work is a count for each value, and
then independent of how many there are. A parameter that is not always there is judged among the trials that have it,
and counts by their share.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

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

TRIALS_LEAST = 10  # with fewer nothing is said
TRIALS_LIMIT = 4_000  # of more, as many that lie evenly in the search
GRID_STEPS = 50
TOP_SHARE = 0.1
PORTION_MARGIN = 1e-9  # normal ranges count by their quantiles, and 0 and 1 are infinite ones
FINEST_STEPS = 1e7  # a finer range counts as continuous, as a float could not tell its steps apart
_FLOOR = 1e-12  # of a density: what was never seen is not impossible
_SCOTT, _NORMAL_IQR, _LEAST_WIDTH = 1.059, 1.34, 0.5 / 1.64


Cell = Callable[[Any], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """Where the values of one parameter fall among ``size`` cells, and in which trials it was there."""

    size: int
    nominal: bool
    cell: Cell
    cells: list[int] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)


def importance(space: SearchSpace, parameters: Sequence[Parameters], losses: Sequence[float]) -> dict[str, float]:
    """Shares that add up to 1, the largest first. Trials outside ``space`` are left out."""
    columns = {path: _columns_of(range_) for path, range_ in _ranges(space.parameters)}
    kept: list[float] = []
    for given, loss in zip(parameters, losses, strict=True):
        flat = space.flatten(given)
        if flat is None:
            continue
        for path, value in flat.items():
            for column, part in zip(columns[path][1], columns[path][0](value), strict=True):
                column.cells.append(column.cell(part))
                column.trials.append(len(kept))
        kept.append(loss)
    raw = {path: sum(_weight(column, kept) for column in found) for path, (_, found) in columns.items()}
    judged = {path: weight for path, weight in raw.items() if any(_is_judged(c) for c in columns[path][1])}
    total = sum(judged.values())
    return {name: weight / total if total else 0.0 for name, weight in sorted(judged.items(), key=lambda one: -one[1])}


# ── columns ─────────────────────────────────────────────────────────────────────────────────────
_Parts = Callable[[Any], Sequence[Any]]


def _ranges(parameters: Sequence[Parameter]) -> Iterator[tuple[str, Range]]:
    for parameter in parameters:
        yield parameter.path, parameter.range
        if isinstance(parameter.range, Choice):
            for option in parameter.range.options:
                yield from _ranges(option.branch or ())


def _columns_of(range_: Range) -> tuple[_Parts, list[_Column]]:
    """What makes a value into those of its columns: one for each, but for lists, which have one an option."""
    if isinstance(range_, Permutation | Subset):
        return range_.to_parts, [_column(part) for part in range_.parts]
    return lambda value: (value,), [_column(range_)]


def _column(range_: Range) -> _Column:
    match range_:
        case Choice(ordered=False):
            return _Column(size=len(range_.options), nominal=True, cell=int)
        case Choice():
            return _numbers(0, len(range_.options) - 1, step=1)
        case IntRange():
            return _numbers(range_.low, range_.high, step=range_.step, log=range_.log)
        case FloatRange():
            reach = max(abs(range_.low), abs(range_.high), range_.high - range_.low)
            fine = range_.step is None or reach > FINEST_STEPS * range_.step
            return _numbers(range_.low, range_.high, step=None if fine else range_.step, log=range_.log)
        case QuantizedRange(log=True):
            return _numbers(range_.low, range_.high, log=True)
        case QuantizedRange():
            return _numbers(0, range_.size - 1, step=1, of=range_.index_of)
        case NormalRange():
            return _numbers(PORTION_MARGIN, 1 - PORTION_MARGIN, of=range_.portion)
        case _:
            raise TypeError(f"{type(range_).__name__} is judged by its parts")


def _numbers(
    low: float, high: float, *, step: float | None = None, log: bool = False, of: Callable[[Any], float] | None = None
) -> _Column:
    if low >= high:
        return _Column(size=1, nominal=False, cell=lambda _: 0)
    size = GRID_STEPS
    if step is not None and log:
        size = min(math.ceil(math.log2(high - low + 1)) + 1, size)
    elif step is not None:
        size = min(round((high - low) / step) + 1, size)
    least, most = (math.log(low), math.log(high)) if log else (low, high)
    width = (most - least) / (size - 1)

    def cell(value: Any) -> int:
        number = value if of is None else of(value)
        # A value in the middle between two cells goes to the lower one.
        return min(max(math.ceil(((math.log(number) if log else number) - least) / width - 0.5), 0), size - 1)

    return _Column(size=size, nominal=False, cell=cell)


# ── how different the best are ──────────────────────────────────────────────────────────────────
def _is_judged(column: _Column) -> bool:
    return column.size > 1 and len(column.cells) >= TRIALS_LEAST


def _weight(column: _Column, losses: Sequence[float]) -> float:
    if not _is_judged(column):
        return 0.0
    own = [losses[trial] for trial in column.trials]
    cut = sorted(own)[math.ceil(TOP_SHARE * len(own)) - 1]
    top = [cell for cell, loss in zip(column.cells, own, strict=True) if loss <= cut]
    best, every = _density(column, top), _density(column, column.cells)
    divergence = sum(there * (here / there - 1.0) ** 2 for here, there in zip(best, every, strict=True))
    return divergence * (len(top) / len(own)) ** 2 * len(own) / len(losses)


def _density(column: _Column, cells: Sequence[int]) -> list[float]:
    """Over the cells: a kernel at each that was seen, of the weight of its count, and one of weight 1 over them all."""
    counts = [0] * column.size
    for cell in cells:
        counts[cell] += 1
    seen = [(cell, count) for cell, count in enumerate(counts) if count]
    density = _nominal(seen, column.size) if column.nominal else _smooth(seen, column.size)
    return [value + _FLOOR for value in density]


def _nominal(seen: Sequence[tuple[int, int]], size: int) -> list[float]:
    kernels, total = len(seen) + 1, sum(count for _, count in seen) + 1
    other = 1.0 / kernels  # what each kernel gives every option, beside 1 for its own
    row = 1.0 + size * other
    density = [(1.0 / size + sum(count for _, count in seen) * other / row) / total] * size
    for cell, count in seen:
        density[cell] += count / row / total
    return density


def _smooth(seen: Sequence[tuple[int, int]], size: int) -> list[float]:
    """Normal kernels, cut at the ends of the grid and summed over each cell; their width is Scott's."""
    total = sum(count for _, count in seen)
    width = max(_scott(seen, total), _LEAST_WIDTH)
    density = [0.0] * size
    # Kernels of one width differ by whole cells: what they have below a border is looked up by the distance.
    below = {distance: _below(distance - 0.5, width) for distance in range(-size, size + 2)}
    for place, count in seen:
        whole = below[size - place] - below[-place]
        for cell in range(size):
            density[cell] += (below[cell + 1 - place] - below[cell - place]) / whole * count
    borders = [_below(cell - 0.5 - (size - 1) / 2, float(size)) for cell in range(size + 1)]
    return [
        (density[cell] + (borders[cell + 1] - borders[cell]) / (borders[-1] - borders[0])) / (total + 1)
        for cell in range(size)
    ]


def _below(distance: float, width: float) -> float:
    return 0.5 * (1.0 + math.erf(distance / width / math.sqrt(2.0)))


def _scott(seen: Sequence[tuple[int, int]], total: int) -> float:
    mean = sum(cell * count for cell, count in seen) / total
    deviation = math.sqrt(sum((cell - mean) ** 2 * count for cell, count in seen) / max(1, total - 1))
    sums = list(accumulate(count for _, count in seen))
    first = bisect_left(sums, total // 4)
    third = min(bisect_right(sums, total * 3 // 4), len(seen) - 1)
    spread = float(seen[third][0] - seen[first][0])
    return _SCOTT * min(spread / _NORMAL_IQR, deviation) * math.pow(total, -0.2)
