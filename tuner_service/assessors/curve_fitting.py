"""``curve_fitting``: stop a trial whose learning curve, carried on to its end, does not come near the best so far.

Domhan, Springenberg and Hutter, "Speeding up Automatic Hyperparameter Optimization of Deep Neural Networks by
Extrapolation of Learning Curves", 2015, in the form of NNI: twelve families of curves are fitted by least squares,
those that fit badly or end far from the others are left out, and the rest is averaged. With fewer than four left the
curve is not settled yet, and the trial goes on.

Here the parameters that bend a curve are taken from a list, and only those that stretch and shift it are fitted: that
is linear, so a fit is the product of the values with a matrix that depends on their number alone, it cannot fail, and
a verdict takes microseconds where twelve searches for a least square take milliseconds (and a millisecond where the
matrix has to be made anew, as ``FITS_KEPT`` are kept). NNI then moves the equal
weights a little by random steps, which is left out: a verdict has to be a function of the reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import median
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

LEAST_CURVES = 4  # with fewer that agree, nothing is predicted
POINTS_LIMIT = 50  # reports that curves are fitted to, spread over the whole; so a verdict's cost is bounded
BENDS = 40  # of each family at most
COLLINEAR = 1e-6  # a column that differs from the other by no more, relatively, says nothing of its own
FITS_KEPT = 64  # of 800 KB at most

Values = NDArray[np.float64]
Bend = Sequence[float]
BENT = None  # in a column: a parameter that is taken from the list


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A family. ``columns``: parameters at which ``of`` gives the curves whose sum is fitted.

    ``bends``: from the report number at which a trial ends, what is tried for the parameters that are ``BENT``.
    """

    name: str
    of: Callable[..., Any]
    columns: tuple[tuple[float | None, ...], ...]
    bends: Callable[[float], Sequence[Bend]]


def _places(last: float, count: int) -> list[float]:
    """Where a curve may bend: from before the first report to beyond the end."""
    found: list[float] = np.geomspace(0.5, 2 * last, count).tolist()
    return found


def _rates(powers: Sequence[float]) -> Callable[[float], list[Bend]]:
    """For ``exp(-rate * x ** power)``: falls to a third at each place."""
    return lambda last: [(place**-power, power) for place in _places(last, 12) for power in powers]


def _straight(last: float) -> list[Bend]:  # noqa: ARG001  # as the others
    return [()]


CURVES = (
    Curve(
        name="vap",
        of=lambda x, a, b, c: np.exp(a + b / x + c * np.log(x)),
        columns=((0.0, BENT, BENT),),
        bends=lambda _: list(product((-4, -2, -1, -0.5, 0.5), (-1, -0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5))),
    ),
    Curve(
        name="pow3",
        of=lambda x, c, a, alpha: c - a * x ** (-alpha),
        columns=((1.0, 0.0, BENT), (0.0, 1.0, BENT)),
        bends=lambda _: [(alpha,) for alpha in np.geomspace(0.01, 4, 16)],
    ),
    Curve(name="linear", of=lambda x, a, b: a * x + b, columns=((0.0, 1.0), (1.0, 0.0)), bends=_straight),
    Curve(name="logx_linear", of=lambda x, a, b: a * np.log(x) + b, columns=((0.0, 1.0), (1.0, 0.0)), bends=_straight),
    Curve(
        name="dr_hill_zero_background",
        of=lambda x, theta, eta, kappa: (theta * x**eta) / (kappa**eta + x**eta),
        columns=((1.0, BENT, BENT),),
        bends=lambda last: list(product((0.25, 0.5, 1, 2, 4), _places(last, 8))),
    ),
    Curve(
        name="log_power",
        of=lambda x, a, b, c: a / (1.0 + (x / np.exp(b)) ** c),
        columns=((1.0, BENT, BENT),),
        bends=lambda last: list(product(map(math.log, _places(last, 8)), (-2, -1, -0.5, 0.5, 1))),
    ),
    Curve(
        name="pow4",
        of=lambda x, alpha, a, b, c: c - (a * x + b) ** -alpha,
        columns=((1.0, 0.0, math.inf, 1.0), (BENT, 1.0, BENT, 0.0)),
        bends=lambda last: list(product((0.1, 0.25, 0.5, 1, 2), (0, 1, 3, last / 4, last))),
    ),
    Curve(
        name="mmf",
        of=lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) / (1.0 + (kappa * x) ** delta),
        columns=((1.0, 0.0, BENT, BENT), (0.0, 1.0, BENT, BENT)),
        bends=lambda last: [(1 / place, delta) for place in _places(last, 10) for delta in (0.5, 1, 2, 4)],
    ),
    Curve(
        name="exp4",
        of=lambda x, c, a, b, alpha: c - np.exp(-a * (x**alpha) + b),
        columns=((1.0, 0.0, -math.inf, 1.0), (0.0, BENT, 0.0, BENT)),
        bends=_rates((0.3, 0.5, 1)),
    ),
    Curve(
        name="ilog2", of=lambda x, c, a: c - a / np.log(x), columns=((1.0, 0.0), (0.0, 1.0)), bends=_straight
    ),  # infinite at the first report, so it never fits the whole
    Curve(
        name="weibull",
        of=lambda x, alpha, beta, kappa, delta: alpha - (alpha - beta) * np.exp(-((kappa * x) ** delta)),
        columns=((1.0, 0.0, BENT, BENT), (0.0, 1.0, BENT, BENT)),
        bends=lambda last: [(1 / place, delta) for place in _places(last, 12) for delta in (0.5, 1, 2)],
    ),
    Curve(
        name="janoschek",
        of=lambda x, a, beta, k, delta: a - (a - beta) * np.exp(-k * x**delta),
        columns=((1.0, 0.0, BENT, BENT), (0.0, 1.0, BENT, BENT)),
        bends=_rates((0.4, 0.7, 1)),
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
        predicted = predict([report.value for report in reports], self._max_step)
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


# ── fitting ─────────────────────────────────────────────────────────────────────────────────────
def predict(values: Sequence[float], last: int) -> float | None:
    """The value at report number ``last`` (from 1); None where the curves do not agree, or a value is not finite."""
    fits = _fits(len(values), last)
    y: Values = np.array(values, dtype=np.float64)[fits.places]
    with np.errstate(all="ignore"):
        count, square = len(y), float(y @ y)
    if not math.isfinite(square):
        return None
    explained, known, ends = fits.of(y)
    missed = max(0.0, square - float(y.sum()) ** 2 / count)  # what the square of the mean itself misses of it
    fitting = [place for place, portion in enumerate(explained) if portion > missed]
    if len(fitting) < LEAST_CURVES:
        return None
    at_hand = [known[place] for place in fitting]
    mean = sum(at_hand) / len(at_hand)
    margin = count / 10 * math.sqrt(sum((value - mean) ** 2 for value in at_hand) / len(at_hand))
    middle = median(at_hand)
    agreeing = [ends[place] for place in fitting if middle - margin < ends[place] < middle + margin]
    return sum(agreeing) / len(agreeing) if len(agreeing) >= LEAST_CURVES else None


class Fits:
    """Least squares of every family and bend to values at ``places``, worked out for all values at once.

    Columns of a bend become orthonormal (Gram and Schmidt), so what they explain is the sum of two squares.
    """

    def __init__(self, count: int, last: int) -> None:
        self.places = np.unique(np.linspace(0, count - 1, min(count, POINTS_LIMIT)).round().astype(int))
        x = np.append(self.places + 1.0, float(last))
        columns = np.full((2, len(CURVES), BENDS, len(x)), math.nan)
        with np.errstate(all="ignore"):
            for family in range(len(CURVES)):
                _fill(columns[:, family], family, x)
            self._columns, self._values = _orthonormal(*columns.reshape(2, -1, len(x)))
        self._starts = np.arange(len(CURVES)) * BENDS

    def of(self, y: Values) -> tuple[list[float], list[float], list[float]]:
        """Of each family's best bend: how much of the square of ``y`` it explains, and what it gives at the last known
        report and at the end.
        """
        parts = (self._columns @ y) ** 2
        explained = parts[: len(parts) // 2] + parts[len(parts) // 2 :]
        best = explained.reshape(len(CURVES), BENDS).argmax(axis=1) + self._starts
        known, ends = (self._values[best] @ y).T.tolist()
        return explained[best].tolist(), known, ends


_fits = lru_cache(maxsize=FITS_KEPT)(Fits)


def _fill(columns: Values, family: int, x: Values) -> None:
    """Of each bend two curves at ``x``, the second of zeros where the family has one only."""
    curve, bends = CURVES[family], _bends(family, float(x[-1]))
    columns[1, : len(bends)] = 0.0
    for column, template in zip(columns, curve.columns, strict=False):
        rest = iter(bends.T)
        parameters = [np.float64(given) if given is not None else next(rest)[:, None] for given in template]
        column[: len(bends)] = curve.of(x, *parameters)


@lru_cache(maxsize=FITS_KEPT)
def _bends(family: int, last: float) -> Values:
    return np.array(CURVES[family].bends(last), dtype=np.float64)


def _orthonormal(first: Values, second: Values) -> tuple[Values, Values]:
    """Two columns of each bend without the end, all first ones before all second ones; and what gives the values at the
    last two places.

    Rows of zeros explain nothing: bends that are not there, and those that are infinite somewhere.
    """
    first = first / _size(first)
    rest = second - (first[:, :-1] * second[:, :-1]).sum(axis=1, keepdims=True) * first
    size, limit = _size(rest), COLLINEAR * _size(second)
    second = np.where(size > limit, rest / size, np.where(limit == 0, 0.0, math.nan))
    bad = ~(np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1))
    first[bad] = second[bad] = 0.0
    known = [first[:, p, None] * first[:, :-1] + second[:, p, None] * second[:, :-1] for p in (-2, -1)]
    return np.concatenate((first[:, :-1], second[:, :-1])), np.stack(known, axis=1)


def _size(column: Values) -> Values:
    """Of each row, the end left out."""
    size: Values = np.linalg.norm(column[:, :-1], axis=1, keepdims=True)
    return size
