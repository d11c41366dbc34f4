"""Where a trial ends, from its course so far: a Gaussian process over the courses of trials that have ended.

It knows no parameters, only losses at the rungs passed, so it holds where a model of the parameters predicts badly; and
where early losses say little about the ends, its noise says so, and every course has prospects. Written for this
project, after the idea of freeze-thaw (Swersky, Snoek and Adams, 2014): go on with what may yet become the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner_service.tuners.model_columns import Rows
from tuner_service.tuners.model_gp import Hyperparameters, Process, Vector, fit, log_expected_improvement
from tuner_service.tuners.model_search import Scale
from tuner_service.tuners.model_surrogate import finite, fitted_at

LEAST_ENDED = 6  # trials that ended and have passed the rung, before anything is said
MOST_ENDED = 64  # the newest of them
RUNGS_SEEN = 2  # the newest rungs of a course

Ended = tuple[Sequence[float], float]  # losses at the rungs, and at the end


class Prospects:
    """Keeps the last fit of each rung only to save time: what it gives depends on its arguments alone."""

    def __init__(self) -> None:
        self._fitted: dict[tuple[int, ...], tuple[int, Hyperparameters]] = {}

    def copied(self) -> Prospects:
        """One that is told of the same ends and further ones of its own, and need not fit anew what is known."""
        other = Prospects()
        other._fitted = dict(self._fitted)
        return other

    def expected_gain(self, course: Sequence[float], ended: Sequence[Ended], *, rungs: tuple[int, ...]) -> float | None:
        """How much better than the best end a trial is expected to end, in deviations of the ends; None: not known.

        ``course``: its losses at ``rungs``, the last one now; ``ended``: others that have passed them, in the order in
        which they ended, to which later ones are only added.
        """
        if len(ended) < LEAST_ENDED:
            return None
        given = self._fit(ended, rungs)
        rows, targets, scales = _scaled(ended)
        unordered = np.zeros(rows.shape[1], dtype=bool)
        seen = np.array(course[-RUNGS_SEEN:], dtype=np.float64)
        if not np.isfinite(seen).all():
            return 0.0  # NaN and infinities are worst
        asked = np.array([[float(scale(seen[place : place + 1])[0]) for place, scale in enumerate(scales[:-1])]])
        mean, deviation = Process(rows, targets, unordered, given).predict(asked)
        best = scales[-1](np.array([min(end for _, end in ended)]))
        # What is asked for is the loss that would be seen, noise included, not the mean of such trials.
        return float(np.exp(log_expected_improvement(mean, np.sqrt(deviation**2 + given.noise), float(best[0])))[0])

    def _fit(self, ended: Sequence[Ended], rungs: tuple[int, ...]) -> Hyperparameters:
        count = fitted_at(len(ended))
        if rungs not in self._fitted or self._fitted[rungs][0] != count:
            rows, targets, _ = _scaled(ended[:count])
            self._fitted[rungs] = (count, fit(rows, targets, np.zeros(rows.shape[1], dtype=bool)))
        return self._fitted[rungs][1]


def _scaled(ended: Sequence[Ended]) -> tuple[Rows, Vector, list[Scale]]:
    """Rows of the newest rungs, their ends, and the scales of each column and then of the ends."""
    shown = ended[-MOST_ENDED:]
    columns = [finite([course[place] for course, _ in shown]) for place in range(-min(RUNGS_SEEN, len(shown[0][0])), 0)]
    columns.append(finite([end for _, end in shown]))
    scales = [Scale.of(column) for column in columns]
    scaled = [scale(column) for scale, column in zip(scales, columns, strict=True)]
    return np.column_stack(scaled[:-1]), scaled[-1], scales
