"""Where trials succeed: a Gaussian process over the space that tells failures from successes.

Least-squares classification: the process is given 1 for a success and 0 for a failure, and the probability of success
is that of its value lying above a half, noise included. Failures that strike anywhere are noise to it, so that it says
the same of every point; failures of a region are told from the rest by the columns that matter, as their lengths are
fitted. Outcomes jump at a border, where a smooth process would overshoot and believe in what lies just beyond: so it is
a rough one. Its cost is bounded as that of the process over losses is (``model_surrogate``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from tuner_service.tuners.model_columns import Columns, Rows, stacked
from tuner_service.tuners.model_gp import Hyperparameters, Process, RoughProcess, Vector, fit, prior_mode
from tuner_service.tuners.model_search import Acquisition
from tuner_service.tuners.model_surrogate import FIT_POINTS, MODEL_POINTS, fitted_at

WIDEST_FITTED = 100  # columns past which the prior's lengths stand
LEAST_NOISE = 0.05  # variance of standardised outcomes: what a few trials say of a border is not quite believed
EVEN = 0.5
NEWEST = 20  # trials, whose share of failures says how much is demanded
LEAST_PORTION, MORE_DEMANDED, MOST_PORTION = 0.5, 2.5, 0.97
LIKELIEST = 0.9  # the quantile of the known points' probabilities that demands are relative to
STEEPNESS = 100.0  # of the fall below what is demanded
LEAST_WORTH = 1e-300


class SuccessModel:
    """Keeps the last fit and process only to save time: what it gives depends on what was added, in its order."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._rows: list[Rows] = []
        self._succeeded: list[bool] = []
        self._fitted: tuple[int, Hyperparameters] | None = None
        self._made: tuple[int, Process, Hyperparameters] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Rows, *, succeeded: bool) -> None:
        self._rows.append(row)
        self._succeeded.append(succeeded)

    def log_probability(self, rows: Rows) -> Vector:
        """Of success, at each row."""
        if self._made is None or self._made[0] != len(self):
            self._made = (len(self), *self._condition())
        _, process, given = self._made
        middle, deviation = self._scale()
        mean, spread = process.predict(rows)
        total = deviation * np.sqrt(spread * spread + given.noise)
        found: Vector = log_ndtr((middle + deviation * mean - EVEN) / total)
        return found

    def weighed(self, acquisition: Acquisition, *, known: Rows, is_logarithm: bool = True) -> Acquisition:
        """The logarithm of ``acquisition`` times the probability of success, and far less where that is too small.

        The product alone would spend trial after trial beyond a border where losses fall towards it: the smaller the
        improvement left on this side, the worse a bet it takes on the other. So a probability is demanded, as a portion
        of what the likeliest of the ``known`` points have; the more of the newest trials failed, the larger a portion.
        """
        newest = self._succeeded[-NEWEST:]
        portion = min(LEAST_PORTION + MORE_DEMANDED * newest.count(False) / len(newest), MOST_PORTION)
        demanded = float(np.quantile(self.log_probability(known), LIKELIEST)) + math.log(portion)

        def of(rows: Rows) -> Vector:
            worth = acquisition(rows) if is_logarithm else np.log(np.maximum(acquisition(rows), LEAST_WORTH))
            chance = self.log_probability(rows)
            weighed: Vector = worth + chance + STEEPNESS * np.minimum(chance - demanded, 0.0)
            return weighed

        return of

    def _scale(self) -> tuple[float, float]:
        """What is expected where nothing is known, and the deviation; as if one more of either had been seen."""
        middle = (sum(self._succeeded) + 1) / (len(self) + 2)
        return middle, math.sqrt(middle * (1 - middle))

    def _condition(self) -> tuple[Process, Hyperparameters]:
        given = self._given()
        given = replace(given, noise=max(given.noise, LEAST_NOISE))
        chosen = _chosen(np.array(self._succeeded), MODEL_POINTS)
        middle, deviation = self._scale()
        targets = (np.array(self._succeeded, dtype=np.float64)[chosen] - middle) / deviation
        rows = stacked(self._rows, self.columns.width)[chosen]
        return RoughProcess(rows, targets, self.columns.unordered, given), given

    def _given(self) -> Hyperparameters:
        """Fitted on a beginning of what was added, so that it does not matter when somebody asked."""
        count, width = fitted_at(len(self)), self.columns.width
        if self._fitted is None or self._fitted[0] != count:
            succeeded = np.array(self._succeeded[:count])
            if width > WIDEST_FITTED or succeeded.all() or not succeeded.any():
                self._fitted = (count, prior_mode(width))
            else:
                chosen = _chosen(succeeded, FIT_POINTS)
                targets = succeeded[chosen].astype(np.float64)
                targets = (targets - targets.mean()) / targets.std()
                rows = stacked(self._rows[:count], width)[chosen]
                self._fitted = (count, fit(rows, targets, self.columns.unordered))
        return self._fitted[1]


def _chosen(succeeded: NDArray[np.bool_], limit: int) -> NDArray[np.intp]:
    """Indices of at most ``limit``: the newest, of failures and successes half each while there are enough of both."""
    failures, successes = np.flatnonzero(~succeeded), np.flatnonzero(succeeded)
    half = limit // 2
    of_failures = min(len(failures), max(half, limit - len(successes)))
    of_successes = min(len(successes), limit - of_failures)
    kept = [failures[len(failures) - of_failures :], successes[len(successes) - of_successes :]]
    return np.sort(np.concatenate(kept))
