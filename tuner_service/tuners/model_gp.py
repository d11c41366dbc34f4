"""A small Gaussian process for search: Matérn 5/2 with a length for every column, fitted by its posterior mode.

Inputs are rows of ``Columns`` (places in [0, 1], indices of options), outputs are standardised by the caller. Columns
of unordered choices differ by 1 or not at all. Priors after Hvarfner, Hellsten & Nardi (2024): lengths grow with the
square root of the number of columns, so that a space of many parameters does not look like noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner_service.tuners.model_columns import Rows

Vector = NDArray[np.float64]

JITTER = 1e-8
FIT_ITERATIONS = 60
LOG_BOUNDS = (-7.0, 7.0)  # of 1 / length²
LOG_SCALE_BOUNDS = (-3.0, 3.0)
LOG_NOISE_BOUNDS = (math.log(1e-6), math.log(0.5))
NOISE_CENTRE, NOISE_SPREAD = math.log(1e-4), 2.0  # of the normal prior of log(noise)
LENGTH_CENTRE = 0.5  # the median length of the prior, in a space of one column
LOG_WEIGHT_SPREAD = 2.0 * math.sqrt(3.0)  # of log(1 / length²); log(length) has deviation sqrt(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """``weights``: 1 / length² of every column; ``scale``: the variance of the function; ``noise``: of one value."""

    weights: Vector
    scale: float
    noise: float


def differences(rows: Rows, others: Rows, unordered: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(columns, len(rows), len(others)): squared differences; 0 or 1 for unordered columns."""
    gaps = rows.T[:, :, None] - others.T[:, None, :]
    squared = gaps * gaps
    squared[unordered] = squared[unordered] > 0
    return squared


def matern(squared: Vector) -> Vector:
    root = np.sqrt(5.0 * squared)
    value: Vector = (1.0 + root + (5.0 / 3.0) * squared) * np.exp(-root)
    return value


def exponential(squared: Vector) -> Vector:
    value: Vector = np.exp(-np.sqrt(squared))
    return value


def distance(rows: Rows, others: Rows, weights: Vector, unordered: NDArray[np.bool_]) -> Vector:
    """(len(rows), len(others)): the weighted squared distances, without a tensor of all columns."""
    left, right = _widened(rows, weights, unordered), _widened(others, weights, unordered)
    squared = (left * left).sum(1)[:, None] + (right * right).sum(1)[None, :] - 2.0 * left @ right.T
    for place in np.flatnonzero(unordered):
        squared += weights[place] * (rows[:, place][:, None] != others[:, place][None, :])
    clipped: Vector = np.maximum(squared, 0.0)
    return clipped


def _widened(rows: Rows, weights: Vector, unordered: NDArray[np.bool_]) -> Rows:
    wide: Rows = rows[:, ~unordered] * np.sqrt(weights[~unordered])
    return wide


def fit(rows: Rows, targets: Vector, unordered: NDArray[np.bool_]) -> Hyperparameters:
    """The mode of the posterior of the hyperparameters; deterministic."""
    from scipy.optimize import minimize  # it takes a while to import, and most processes never fit

    count, width = rows.shape
    upper = np.triu_indices(count, 1)
    gaps = differences(rows, rows, unordered)[:, upper[0], upper[1]]
    centre = _centre(width)

    def objective(theta: Vector) -> tuple[float, Vector]:
        return _negative_log_posterior(theta, gaps, upper, targets, centre)

    start = np.concatenate([np.full(width, centre), [0.0, math.log(1e-3)]])
    bounds = [LOG_BOUNDS] * width + [LOG_SCALE_BOUNDS, LOG_NOISE_BOUNDS]
    found: Any = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": FIT_ITERATIONS}
    )
    theta = found.x
    return Hyperparameters(weights=np.exp(theta[:-2]), scale=math.exp(theta[-2]), noise=math.exp(theta[-1]))


def prior_mode(width: int) -> Hyperparameters:
    """What is taken before anything is fitted, for rows of ``width`` columns."""
    return Hyperparameters(weights=np.full(width, math.exp(_centre(width))), scale=1.0, noise=math.exp(NOISE_CENTRE))


def _centre(width: int) -> float:
    """Of log(1 / length²)."""
    return -2.0 * math.log(LENGTH_CENTRE) - math.log(width)


def _negative_log_posterior(
    theta: Vector, gaps: Vector, upper: Any, targets: Vector, centre: float
) -> tuple[float, Vector]:
    weights, scale, noise = np.exp(theta[:-2]), math.exp(theta[-2]), math.exp(theta[-1])
    count = len(targets)
    squared = weights @ gaps
    root = np.sqrt(5.0 * squared)
    decay = np.exp(-root)
    covariance = np.empty((count, count))
    covariance[upper] = scale * (1.0 + root + (5.0 / 3.0) * squared) * decay
    covariance.T[upper] = covariance[upper]
    covariance[np.diag_indices(count)] = scale + noise + JITTER
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(theta)
    inverse_factor = np.linalg.inv(factor)
    inverse = inverse_factor.T @ inverse_factor
    alpha = inverse @ targets
    value = 0.5 * float(targets @ alpha) + float(np.log(np.diag(factor)).sum())
    pull = inverse - np.outer(alpha, alpha)  # d value / d covariance, doubled
    slope = -(5.0 / 6.0) * (1.0 + root) * decay * scale
    gradient = np.empty_like(theta)
    gradient[:-2] = weights * (gaps @ (pull[upper] * slope))
    diagonal = float(np.trace(pull))
    gradient[-1] = 0.5 * noise * diagonal
    gradient[-2] = 0.5 * (float((pull * covariance).sum()) - (noise + JITTER) * diagonal)
    off = (theta[:-2] - centre) / LOG_WEIGHT_SPREAD
    value += 0.5 * float((off * off).sum()) + 0.5 * theta[-2] ** 2
    value += 0.5 * ((theta[-1] - NOISE_CENTRE) / NOISE_SPREAD) ** 2
    gradient[:-2] += off / LOG_WEIGHT_SPREAD
    gradient[-2] += theta[-2]
    gradient[-1] += (theta[-1] - NOISE_CENTRE) / NOISE_SPREAD**2
    return value, gradient


class Process:
    """Conditioned on ``rows`` and ``targets``; predicts means and deviations of the function, noise left out."""

    kernel: Callable[[Vector], Vector] = staticmethod(matern)

    def __init__(self, rows: Rows, targets: Vector, unordered: NDArray[np.bool_], given: Hyperparameters) -> None:
        self._rows, self._unordered, self._given = rows, unordered, given
        covariance = given.scale * self.kernel(distance(rows, rows, given.weights, unordered))
        covariance[np.diag_indices(len(rows))] += given.noise + JITTER
        self._inverse_factor = np.linalg.inv(np.linalg.cholesky(covariance))
        self._alpha = self._inverse_factor.T @ (self._inverse_factor @ targets)

    def predict(self, rows: Rows) -> tuple[Vector, Vector]:
        cross = self._given.scale * self.kernel(distance(rows, self._rows, self._given.weights, self._unordered))
        mean = cross @ self._alpha
        reduced = cross @ self._inverse_factor.T
        variance = self._given.scale - (reduced * reduced).sum(1)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def left_out(self, targets: Vector) -> tuple[Vector, Vector]:
        """Mean and deviation for each own point, predicted from all others."""
        inverse_diagonal = (self._inverse_factor**2).sum(0)
        mean: Vector = targets - self._alpha / inverse_diagonal
        return mean, np.sqrt(1.0 / inverse_diagonal)


class RoughProcess(Process):
    """With the kernel of an Ornstein-Uhlenbeck process: between two points it never leaves what lies between them."""

    kernel = staticmethod(exponential)


def normal_density(z: Vector) -> Vector:
    value: Vector = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return value


def normal_cdf(z: Vector) -> Vector:
    from scipy.special import ndtr

    value: Vector = ndtr(z)
    return value


def log_expected_improvement(mean: Vector, deviation: Vector, best: float) -> Vector:
    """Of a minimum below ``best``; exact far above it too, where improvement vanishes (Ament and others, 2023)."""
    from scipy.special import erfcx, ndtr

    z = (best - mean) / deviation
    near = np.log(np.maximum(normal_density(z) + z * ndtr(z), 1e-300))
    low = np.minimum(z, -1.0)
    ratio = np.abs(low) * erfcx(-low / math.sqrt(2.0)) * math.sqrt(math.pi / 2.0)
    far = -0.5 * low * low - 0.5 * math.log(2.0 * math.pi) + np.log1p(-np.minimum(ratio, 1.0 - 1e-12))
    value: Vector = np.where(z > -1.0, near, far) + np.log(deviation)
    return value
