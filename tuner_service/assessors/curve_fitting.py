"""``curve_fitting``: stop a trial whose learning curve, carried on to its end, does not come near the best so far.

Domhan, Springenberg and Hutter, "Speeding up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", 2015, in the form of NNI: twelve families of curves are fitted by least squares,
those that fit badly or end far from the others are left out, and the rest is averaged. With fewer than four left the
curve is not settled yet, and the trial goes on. NNI then moves the equal weights a little by random steps, which is
left out here: a verdict has to be a function of the reports.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeWarning, curve_fit

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

LEAST_CURVES = 4  # with fewer that agree, nothing is predicted
POINTS_LIMIT = 200  # reports that curves are fitted to, spread over the whole; so a verdict's cost is bounded
ROUNDS_LIMIT = 300  # evaluations of one fit
PREDICTIONS_KEPT = 1_024  # a fork, and a rebuilt assessor, ask for those that were made before

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``start`` are typical parameters of learning curves, by Domhan et al."""

    name: str
    of: Callable[..., Any]
    start: tuple[float, ...]


CURVES = (
    Curve(
        name="vap",
        of=lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)),
        start=(-0.622028, -0.470050, 0.042322),
    ),
    Curve(name="pow3", of=lambda x, c, a, alpha: c - a * x ** (-alpha), start=(0.84, 0.52, 0.01)),
    Curve(name="linear", of=lambda x, a, b: a * x + b, start=(1.0, 0.0)),
    Curve(name="logx_linear", of=lambda x, a, b: a * np.log(x) + b, start=(0.378106, 0.046506)),
    Curve(
        name="dr_hill_zero_background",
        of=lambda x, theta, eta, kappa: (theta * x**eta) / (kappa**eta + x**eta),
        start=(0.772320, 0.586449, 2.460843),
    ),
    Curve(name="log_power", of=lambda x, a, b, c: a / (1.0 + (x / np.exp(b)) ** c), start=(0.77, 2.98, -0.51)),
    Curve(name="pow4", of=lambda x, alpha, a, b, c: c - (a * x + b) ** -alpha, start=(0.1, 200.0, 0.0, 0.8)),
    Curve(
        name="mmf",
        of=lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) / (1.0 + (kappa * x) ** delta),
        start=(0.7, 0.1, 0.01, 5.0),
    ),
    Curve(name="exp4", of=lambda x, c, a, b, alpha: c - np.exp(-a * (x**alpha) + b), start=(0.7, 0.8, -0.8, 0.3)),
    Curve(name="ilog2", of=lambda x, c, a: c - a / np.log(x), start=(0.78, 0.43)),
    Curve(
        name="weibull",
        of=lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) * np.exp(-((kappa * x) ** delta)),
        start=(0.7, 0.1, 0.01, 1.0),
    ),
    Curve(
        name="janoschek",
        of=lambda x, a, beta, k, delta: a - (a - beta) * np.exp(-k * x**delta),
        start=(0.73, 0.07, 0.355, 0.46),
    ),
)


class CurveFitting(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(
        self,
        objective: Objective,
        *,
        max_step: int = 20,
        start_step: int = 6,
        threshold: float = 0.95,
        gap: int = 1,
    ) -> None:
        super().__init__(objective)
        self._max_step, self._start, self._threshold, self._gap = max_step, start_step, threshold, gap
        self._best: float | None = None  # final value of the best trial that succeeded

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:  # noqa: ARG002  # the port's signature
        count = len(reports)
        if self._best is None or count < self._start or (count - self._start) % self._gap:
            return Keep()
        predicted = predict(tuple(report.value for report in reports), self._max_step)
        if predicted is None:
            return Keep()
        limit = self._limit(self._best)
        if predicted > limit if self.objective.goal is Goal.MAXIMIZE else predicted < limit:
            return Keep()
        return Stop(
            f"after {count} reports its value at the end ({self._max_step} reports) is expected to be {predicted:g}, "
            f"which does not come near the best so far ({self._best:g}, at {self._threshold:g} of it {limit:g})"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        value = outcome.value
        if outcome.status is not TrialStatus.SUCCEEDED or value is None or not math.isfinite(value):
            return
        if self.objective.better(value, self._best):
            self._best = value

    def fork(self) -> Self:
        forked = type(self)(
            self.objective,
            max_step=self._max_step,
            start_step=self._start,
            threshold=self._threshold,
            gap=self._gap,
        )
        forked._best = self._best  # noqa: SLF001  # of its own class
        return forked

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "best": self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best = state["best"]

    def _limit(self, best: float) -> float:
        """How good is good enough: ``threshold`` of the best; for values to be minimised the other way round."""
        better_is_larger = (self.objective.goal is Goal.MAXIMIZE) == (best >= 0)
        return best * self._threshold if better_is_larger else best / self._threshold


@lru_cache(maxsize=PREDICTIONS_KEPT)
def predict(values: tuple[float, ...], last: int) -> float | None:
    """The value at report number ``last`` (from 1); None where the curves do not agree, or a value is not finite."""
    if not all(map(math.isfinite, values)):
        return None
    places = np.unique(np.linspace(1, len(values), min(len(values), POINTS_LIMIT)).round().astype(int))
    x, y = places.astype(float), np.array([values[place - 1] for place in places], dtype=float)
    spread = float((y.mean() ** 2) * len(y))
    fitted = []
    for curve in CURVES:
        parameters = _fit(curve, x, y)
        with np.errstate(all="ignore"):
            known, end = curve.of(x, *parameters), float(curve.of(np.float64(last), *parameters))
        if float(((known - y) ** 2).sum()) < spread and math.isfinite(end):
            fitted.append((float(known[-1]), end))
    if not fitted:
        return None
    at_hand = [known for known, _ in fitted]
    margin = len(y) / 10 * float(np.std(at_hand))
    median = float(np.median(at_hand))
    ends = [end for _, end in fitted if median - margin < end < median + margin]
    return float(np.mean(ends)) if len(ends) >= LEAST_CURVES else None


def _fit(curve: Curve, x: Values, y: Values) -> Values:
    """Parameters by least squares; the typical ones where that finds none."""
    start: Values = np.array(curve.start)  # of NumPy's numbers, whose powers are NaN where Python's are complex
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OptimizeWarning)
        try:
            found, _ = curve_fit(curve.of, x, y, maxfev=ROUNDS_LIMIT)
        except (RuntimeError, ValueError, TypeError, FloatingPointError, OverflowError, ZeroDivisionError):
            return start
    return np.asarray(found, dtype=np.float64)
