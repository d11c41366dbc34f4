"""From a Gaussian process to the next point: targets for the model, candidates, and the best of them.

Candidates are random points and variations of the best known ones; the best of these are varied again with a shrinking
reach. So one search fits continuous, integer, ordered, unordered and conditional parameters alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tuner_service.tuners.model_columns import Columns, Rows
from tuner_service.tuners.model_gp import Vector, normal_cdf, normal_density

RANDOM_CANDIDATES = 600
CENTRES = 5  # the best known points, and later the best candidates
VARIATIONS = ((40, 0.1), (30, 0.02))  # of each centre: how many, and how far
LEAST_WIDTH = 1e-150  # of the extent of losses, so that a square of what is divided by it is a number
REFINEMENTS = ((25, 0.1), (25, 0.04), (25, 0.01))

Acquisition = Callable[[Rows], Vector]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Losses as a model sees them: the median is 0, the bad half is squashed by a logarithm, the deviation is 1.

    So values that are terrible (a diverged training) cost no resolution among the good ones.
    """

    middle: float
    width: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, losses: Vector) -> Scale:
        middle = float(np.median(losses))
        width = float(np.median(np.abs(losses - middle)))
        if width <= 0.0:
            width = float(losses.std()) or 1.0
        width = max(width, float(np.ptp(losses)) * LEAST_WIDTH)
        bent = _bent((losses - middle) / width)
        return cls(middle=middle, width=width, mean=float(bent.mean()), deviation=float(bent.std()) or 1.0)

    def __call__(self, losses: Vector) -> Vector:
        scaled: Vector = (_bent((losses - self.middle) / self.width) - self.mean) / self.deviation
        return scaled


def _bent(units: Vector) -> Vector:
    bent: Vector = np.where(units > 0, np.log1p(np.maximum(units, 0.0)), units)
    return bent


def candidates(columns: Columns, centres: Rows, acquisition: Acquisition, rng: np.random.Generator) -> Iterator[Rows]:
    """Rows by falling acquisition; the first is the best found."""
    pools = [columns.random(RANDOM_CANDIDATES, rng)]
    if len(centres):
        pools += [columns.neighbours(centres, count, rng, reach=reach) for count, reach in VARIATIONS]
    pool = np.concatenate(pools)
    worth = acquisition(pool)
    for count, reach in REFINEMENTS:
        best = pool[np.argsort(-worth, kind="stable")[:CENTRES]]
        pool = np.concatenate([best, columns.neighbours(best, count, rng, reach=reach)])
        worth = acquisition(pool)
    yield from pool[np.argsort(-worth, kind="stable")]


def expected_hypervolume_improvement(
    means: tuple[Vector, Vector], deviations: tuple[Vector, Vector], front: Rows, reference: Vector
) -> Vector:
    """Of two minimised objectives, exact. Yang and others, "Efficient Computation of Expected Hypervolume Improvement
    Using Box Decomposition Algorithms", 2019.

    ``front``: the points that are not dominated, any order; ``reference``: the corner up to which volume counts.
    """
    inside = front[(front < reference).all(axis=1)]
    inside = inside[np.argsort(-inside[:, 0], kind="stable")]
    firsts = np.concatenate([[reference[0]], inside[:, 0], [-math.inf]])
    # Between two neighbours in the first objective, the better of them there bounds the second one.
    bounds = np.concatenate([inside[:, 1], [reference[1]]])
    total = np.zeros_like(means[0])
    for index in range(len(firsts) - 1):
        high, low, bound = firsts[index], firsts[index + 1], bounds[index]
        gain = _partial(bound, bound, means[1], deviations[1])
        width = _partial(high, high, means[0], deviations[0])
        if math.isfinite(low):
            below = normal_cdf((low - means[0]) / deviations[0])
            width = width - _partial(high, low, means[0], deviations[0]) + (high - low) * below
        total = total + width * gain
    return np.maximum(total, 0.0)


def _partial(a: float, b: float, mean: Vector, deviation: Vector) -> Vector:
    """The integral of (a - y) up to ``b``, y normal."""
    z = (b - mean) / deviation
    value: Vector = deviation * normal_density(z) + (a - mean) * normal_cdf(z)
    return value
