"""What ``auto`` believes about losses: a Gaussian process over (columns, how far a trial has come), of few points.

The cost of a process grows with the cube of its points, so it is shown at most ``MODEL_POINTS``, and its lengths are
fitted on at most ``FIT_POINTS`` of them, anew whenever the points have grown by ``FIT_GROWTH``: always from a beginning
of the history, so that the fit is a function of the history and not of when somebody asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner_service.tuners.model_columns import Rows
from tuner_service.tuners.model_gp import Hyperparameters, Process, Vector, fit
from tuner_service.tuners.model_search import Scale

MODEL_POINTS = 256
FIT_POINTS = 128
FIT_GROWTH = 1.15
FIRST_FIT = 4  # fewer points are not fitted: the prior's mode stands for them
LIMIT = 1e150  # of losses, whose differences are squared


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """In the order in which they became known. ``reach``: 1 at the end of a trial, less before."""

    rows: Rows
    reach: Vector
    losses: Vector

    def __len__(self) -> int:
        return len(self.losses)

    def at(self, chosen: NDArray[np.intp]) -> Points:
        return Points(rows=self.rows[chosen], reach=self.reach[chosen], losses=self.losses[chosen])

    def finite(self) -> Points:
        """Their losses as ``finite`` has them: beside more points, the same one may have another."""
        return Points(rows=self.rows, reach=self.reach, losses=finite(self.losses))

    @property
    def inputs(self) -> Rows:
        return np.column_stack([self.rows, self.reach])


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A conditioned process and the scale of its targets."""

    process: Process
    scale: Scale
    targets: Vector
    inputs: Rows
    given: Hyperparameters
    unordered: NDArray[np.bool_]

    def at_end(self, rows: Rows) -> tuple[Vector, Vector]:
        """Mean and deviation of the (scaled) losses that trials of ``rows`` end with."""
        return self.process.predict(np.column_stack([rows, np.ones(len(rows))]))

    def with_running(self, rows: Rows) -> Belief:
        """As if trials of ``rows``, which run, had ended as expected: what is near them is known better."""
        if not len(rows):
            return self
        inputs = np.concatenate([self.inputs, np.column_stack([rows, np.ones(len(rows))])])
        targets = np.concatenate([self.targets, self.at_end(rows)[0]])
        process = Process(inputs, targets, self.unordered, self.given)
        return Belief(
            process=process,
            scale=self.scale,
            targets=targets,
            inputs=inputs,
            given=self.given,
            unordered=self.unordered,
        )


class Surrogate:
    """Keeps the last fit only to save time: what it gives depends on its arguments alone."""

    def __init__(self, unordered: NDArray[np.bool_]) -> None:
        self._unordered = np.append(unordered, False)
        self._fitted: tuple[object, Hyperparameters] | None = None

    def believe(self, points: Points, *, key: object = None) -> Belief:
        """``key``: whatever, beside their number, tells the first of ``points`` from other ones asked about before."""
        given = self.fitted(points, key=key)
        points = points.finite()
        shown = points.at(_chosen(points, MODEL_POINTS))
        scale = Scale.of(shown.losses)
        targets, inputs = scale(shown.losses), shown.inputs
        return Belief(
            process=Process(inputs, targets, self._unordered, given),
            scale=scale,
            targets=targets,
            inputs=inputs,
            given=given,
            unordered=self._unordered,
        )

    def trust_in(self, rows: Rows, losses: Vector, *, by: Points, key: object = None) -> float:
        """Rank correlation between losses, all seen equally far, and what the others say with the lengths of ``by``."""
        inputs, targets = np.column_stack([rows, np.ones(len(rows))]), Scale.of(losses)(losses)
        predicted, _ = Process(inputs, targets, self._unordered, self.fitted(by, key=key)).left_out(targets)
        return rank_correlation(predicted, targets)

    def fitted(self, points: Points, *, key: object = None) -> Hyperparameters:
        """``key``: as in ``believe``."""
        count = fitted_at(len(points))
        if self._fitted is None or self._fitted[0] != (count, key):
            beginning = points.at(np.arange(count)).finite()
            shown = beginning.at(_chosen(beginning, FIT_POINTS))
            targets = Scale.of(shown.losses)(shown.losses)
            self._fitted = ((count, key), fit(shown.inputs, targets, self._unordered))
        return self._fitted[1]


def fitted_at(count: int) -> int:
    """The number of points, at most ``count``, on which the newest fit was made."""
    at = min(count, FIRST_FIT)
    while (following := max(at + 1, int(at * FIT_GROWTH))) <= count:
        at = following
    return at


def _chosen(points: Points, limit: int) -> NDArray[np.intp]:
    """Indices of at most ``limit`` points: the best and the furthest come, a third each; the rest evenly spread."""
    count = len(points)
    if count <= limit:
        return np.arange(count)
    third = limit // 3
    best = np.argsort(points.losses, kind="stable")[:third]
    furthest = np.argsort(-points.reach, kind="stable")[:third]
    chosen = np.union1d(best, furthest)
    rest = np.setdiff1d(np.arange(count), chosen)
    spread = rest[np.linspace(0, len(rest) - 1, min(limit - len(chosen), len(rest))).astype(np.intp)]
    return np.union1d(chosen, spread)


def finite(losses: Sequence[float] | Vector) -> Vector:
    """Infinities as bad as the worst number; zeros where there is no number. None lies beyond ``LIMIT``."""
    array = np.array(losses, dtype=np.float64)
    known = np.isfinite(array)
    worst = array[known].max() if known.any() else 0.0
    filled: Vector = np.clip(np.where(known, array, worst), -LIMIT, LIMIT)
    return filled


def rank_correlation(values: Vector, others: Vector) -> float:
    """Spearman's; 0 where either does not vary."""
    ranks = [np.argsort(np.argsort(array, kind="stable"), kind="stable") for array in (values, others)]
    if np.ptp(values) == 0 or np.ptp(others) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
