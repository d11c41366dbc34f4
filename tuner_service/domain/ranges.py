"""What one parameter may be: a range of numbers, or a choice among options.

Every range samples, counts its values, says whether a value belongs to it, and divides itself for a grid. The
classes are frozen and hold plain JSON values only, so they can be compared, hashed and sent.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

from trials.wire.values import value_key
from tuner_service.domain.conditions import Condition

FLOAT_LIMIT = sys.float_info.max
EXPONENT_LIMIT = 700.0  # exp() of more overflows; lognormal draws are cut there
TOLERANCE = 1e-9  # relative; a value typed by hand (0.3) belongs to a stepped range that computes 0.30000000000000004


def is_number(value: Any) -> bool:
    """Whether it is a finite number; an integer that no float can hold is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -FLOAT_LIMIT <= value <= FLOAT_LIMIT


def _close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=TOLERANCE, abs_tol=1e-12)


def _evenly(low: float, high: float, *, index: int, points: int) -> float:
    if index == 0 or points == 1:
        return low
    return high if index == points - 1 else low + (high - low) * index / (points - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRange:
    """Numbers from ``low`` to ``high``, both included; with ``step``, ``low + k * step`` only."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def size(self) -> float:
        if self.low == self.high:
            return 1
        return math.inf if self.step is None else math.floor((self.high - self.low) / self.step + TOLERANCE) + 1

    def value_at(self, index: int) -> float:
        """The ``index``-th value of a stepped range."""
        return self.low if self.step is None else min(self.low + index * self.step, self.high)

    def sample(self, rng: random.Random) -> float:
        if self.size != math.inf:
            return self.value_at(rng.randrange(int(self.size)))
        if not self.log:
            return min(max(rng.uniform(self.low, self.high), self.low), self.high)
        return min(max(math.exp(rng.uniform(math.log(self.low), math.log(self.high))), self.low), self.high)

    def contains(self, value: Any) -> bool:
        if not is_number(value) or not self.low <= value <= self.high:
            return False
        return self.step is None or _close(self.value_at(self.index_of(value)), value)

    def index_of(self, value: float) -> int:
        """The index of the value of a stepped range that is nearest to ``value``."""
        if self.step is None:
            return 0
        return min(max(round((value - self.low) / self.step), 0), int(self.size) - 1)  # ``high`` may be no value

    def grid_size(self, points: int) -> int:
        return points if self.size == math.inf else int(self.size)

    def grid_value(self, index: int, points: int) -> float:
        if self.size != math.inf:
            return self.value_at(index)
        if not self.log or index in {0, points - 1}:
            return _evenly(self.low, self.high, index=index, points=points)
        value = math.exp(_evenly(math.log(self.low), math.log(self.high), index=index, points=points))
        return min(max(value, self.low), self.high)  # in a narrow range rounding leads out of it


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """Integers from ``low`` to ``high``, both included, ``step`` apart."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    @property
    def size(self) -> float:
        return (self.high - self.low) // self.step + 1

    def value_at(self, index: int) -> int:
        return self.low + index * self.step

    def sample(self, rng: random.Random) -> int:
        if not self.log:
            return self.value_at(rng.randrange(int(self.size)))
        # Half a unit beyond both ends, so that the ends are as likely as their neighbours.
        drawn = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return min(max(round(drawn), self.low), self.high)

    def contains(self, value: Any) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def grid_size(self, points: int) -> int:  # noqa: ARG002  # an integer is not continuous: all of its values
        return int(self.size)

    def grid_value(self, index: int, points: int) -> int:  # noqa: ARG002  # likewise
        return self.value_at(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedRange:
    """NNI's quniform and qloguniform: ``clip(round(x / q) * q, low, high)`` for x uniform (in the logarithm)."""

    low: float
    high: float
    q: float
    log: bool = False

    @property
    def first(self) -> int:
        return round(self.low / self.q)

    @property
    def size(self) -> float:
        return round(self.high / self.q) - self.first + 1

    def project(self, drawn: float) -> float:
        return float(min(max(round(drawn / self.q) * self.q, self.low), self.high))

    def value_at(self, index: int) -> float:
        return float(min(max((self.first + index) * self.q, self.low), self.high))

    def index_of(self, value: float) -> int:
        return min(max(round(value / self.q) - self.first, 0), int(self.size) - 1)

    def sample(self, rng: random.Random) -> float:
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return self.project(min(max(drawn, self.low), self.high))
        return self.project(rng.uniform(self.low, self.high))

    def contains(self, value: Any) -> bool:
        return is_number(value) and self.low <= value <= self.high and _close(self.project(value), value)

    def grid_size(self, points: int) -> int:  # noqa: ARG002  # not continuous: all of its values
        return int(self.size)

    def grid_value(self, index: int, points: int) -> float:  # noqa: ARG002  # likewise
        return self.value_at(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalRange:
    """NNI's normal, qnormal, lognormal and qlognormal: no bounds; a grid takes its quantiles."""

    mu: float
    sigma: float
    log: bool = False
    q: float | None = None

    @property
    def size(self) -> float:
        return math.inf

    def project(self, drawn: float) -> float:
        """The value that a draw from the normal distribution stands for."""
        value = math.exp(min(drawn, EXPONENT_LIMIT)) if self.log else drawn
        return value if self.q is None else round(value / self.q) * self.q

    def quantile(self, portion: float) -> float:
        return self.project(NormalDist(self.mu, self.sigma).inv_cdf(portion))

    def portion(self, value: float) -> float:
        """The inverse of ``quantile`` where that has one: how much of the distribution lies below ``value``."""
        drawn = value if not self.log else math.log(value) if value > 0 else -math.inf
        return NormalDist(self.mu, self.sigma).cdf(drawn)

    def sample(self, rng: random.Random) -> float:
        return self.quantile(max(rng.random(), sys.float_info.epsilon))

    def contains(self, value: Any) -> bool:
        if not is_number(value) or (self.log and (value < 0 or (value == 0 and self.q is None))):
            return False
        return self.q is None or _close(round(value / self.q) * self.q, value)

    def grid_size(self, points: int) -> int:
        return len(_normal_grid(self, points))

    def grid_value(self, index: int, points: int) -> float:
        return _normal_grid(self, points)[index]


@lru_cache(maxsize=1024)
def _normal_grid(normal: NormalRange, points: int) -> tuple[float, ...]:
    """Quantised neighbours fall together, so there may be fewer than ``points``."""
    return tuple(sorted({normal.quantile((index + 0.5) / points) for index in range(points)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """``path`` names it in the whole space: ``layer/conv/kernel`` is parameter kernel of option conv of layer."""

    name: str
    path: str
    range: Range
    when: Condition | None = None  # None: it is always there


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a choice: a JSON value, or (``branch`` set) the ``_name`` of a nested space."""

    value: Any
    branch: tuple[Parameter, ...] | None = None

    @cached_property
    def key(self) -> str:
        return value_key(self.value)

    def __hash__(self) -> int:  # the value may be a list, which has no hash of its own
        return hash(self.key)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of the options; ``ordered`` when their order means something."""

    options: tuple[Option, ...]
    ordered: bool = False

    @cached_property
    def is_flat(self) -> bool:
        """Whether no option is a nested space."""
        return all(option.branch is None for option in self.options)

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {option.key: index for index, option in enumerate(self.options) if option.branch is None}

    @cached_property
    def _branches(self) -> dict[str, int]:
        return {option.value: index for index, option in enumerate(self.options) if option.branch is not None}

    def index_of(self, value: Any) -> int | None:
        """Which option ``value`` is (of a nested one: the dict with its ``_name``), or None."""
        if isinstance(value, dict) and "_name" in value:
            name = value["_name"]
            return self._branches.get(name) if isinstance(name, str) else None
        return self._indices.get(value_key(value))

    def sample(self, rng: random.Random) -> int:
        """The index of an option."""
        return rng.randrange(len(self.options))


class _Items:
    """What permutations and subsets share: values of theirs are lists of options, ``flat`` lists of their indices."""

    options: tuple[Option, ...]

    def indices_of(self, value: Any) -> tuple[int, ...] | None:
        """The indices of the options in ``value``, in its order; None where one is unknown or comes twice."""
        if not isinstance(value, list | tuple):
            return None
        places = {option.key: index for index, option in enumerate(self.options)}
        found = [places.get(value_key(item)) for item in value]
        indices = tuple(index for index in found if index is not None)
        return indices if len(indices) == len(found) == len(set(indices)) else None

    def value_of(self, indices: Sequence[int]) -> list[Any]:
        return [self.options[index].value for index in indices]


@dataclass(frozen=True, kw_only=True)
class Permutation(_Items):
    """All of the options, in any order."""

    options: tuple[Option, ...]

    @property
    def size(self) -> float:
        return _within_floats(math.factorial(len(self.options)))

    def flat_of(self, value: Any) -> tuple[int, ...] | None:
        indices = self.indices_of(value)
        return indices if indices is not None and len(indices) == len(self.options) else None

    def contains(self, value: Any) -> bool:
        return self.flat_of(value) is not None

    def sample(self, rng: random.Random) -> tuple[int, ...]:
        return tuple(rng.sample(range(len(self.options)), len(self.options)))

    def grid_size(self, points: int) -> int:  # noqa: ARG002  # not continuous: all of its values
        return math.factorial(len(self.options))

    def grid_value(self, index: int, points: int) -> list[Any]:  # noqa: ARG002  # likewise
        left, order = list(range(len(self.options))), []
        for count in range(len(left), 0, -1):
            place, index = divmod(index, math.factorial(count - 1))
            order.append(left.pop(place))
        return self.value_of(order)

    @property
    def parts(self) -> tuple[Range, ...]:
        """What a model sees in its place: one key for each option, by which they are sorted."""
        return (FloatRange(low=0.0, high=1.0),) * len(self.options)

    def to_parts(self, flat: Sequence[int]) -> list[float]:
        ranks = {index: rank for rank, index in enumerate(flat)}
        return [(ranks[index] + 0.5) / len(flat) for index in range(len(flat))]

    def from_parts(self, keys: Sequence[float]) -> tuple[int, ...]:
        return tuple(sorted(range(len(keys)), key=lambda index: (keys[index], index)))


@dataclass(frozen=True, kw_only=True)
class Subset(_Items):
    """``least`` to ``most`` of the options, in the order in which they were written."""

    options: tuple[Option, ...]
    least: int
    most: int

    @property
    def size(self) -> float:
        return _within_floats(self.grid_size(1))

    def flat_of(self, value: Any) -> tuple[int, ...] | None:
        indices = self.indices_of(value)
        if indices is None or not self.least <= len(indices) <= self.most or list(indices) != sorted(indices):
            return None
        return indices

    def contains(self, value: Any) -> bool:
        return self.flat_of(value) is not None

    def sample(self, rng: random.Random) -> tuple[int, ...]:
        """Every subset is as likely as any other."""
        return self._ranked(rng.randrange(self.grid_size(1)))

    def grid_size(self, points: int) -> int:  # noqa: ARG002  # not continuous: all of its values
        return sum(math.comb(len(self.options), count) for count in range(self.least, self.most + 1))

    def grid_value(self, index: int, points: int) -> list[Any]:  # noqa: ARG002  # likewise
        return self.value_of(self._ranked(index))

    def _ranked(self, index: int) -> tuple[int, ...]:
        """The ``index``-th subset: smaller ones first, then by their options."""
        count = self.least
        while index >= (block := math.comb(len(self.options), count)):
            index, count = index - block, count + 1
        chosen: list[int] = []
        for place in range(len(self.options)):
            with_it = math.comb(len(self.options) - place - 1, count - len(chosen) - 1) if count > len(chosen) else 0
            if index < with_it:
                chosen.append(place)
            else:
                index -= with_it
        return tuple(chosen)

    @property
    def parts(self) -> tuple[Range, ...]:
        """What a model sees in its place: for each option whether it is there."""
        return (Choice(options=(Option(value=False), Option(value=True))),) * len(self.options)

    def to_parts(self, flat: Sequence[int]) -> list[int]:
        return [int(index in flat) for index in range(len(self.options))]

    def from_parts(self, chosen: Sequence[float]) -> tuple[int, ...]:
        """The likeliest are added, or the unlikeliest taken away, until there are as many as there may be."""
        order = sorted(range(len(chosen)), key=lambda index: (-chosen[index], index))
        count = sum(likely > 0.5 for likely in chosen)
        return tuple(sorted(order[: min(max(count, self.least), self.most)]))


def _within_floats(count: int) -> float:
    return count if count <= FLOAT_LIMIT else math.inf


NumericRange = FloatRange | IntRange | QuantizedRange | NormalRange
Range = NumericRange | Choice | Permutation | Subset
