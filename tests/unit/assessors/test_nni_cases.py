"""NNI's own cases of its two assessors give the same decisions here; its rules are written down again beside them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.assessors.curve_fitting import CURVES, Curve, CurveFitting, Fits, predict
from tuner_service.assessors.median_stop import MedianStop
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

UNSETTLED = [1, 199, 0, 199, 1, 209, 2]


def reports(values: Sequence[float]) -> list[Report]:
    return [Report(step=step, value=value) for step, value in enumerate(values)]


def end(assessor: Assessor, number: int, values: Sequence[float], *, succeeded: bool = True) -> None:
    status = TrialStatus.SUCCEEDED if succeeded else TrialStatus.FAILED
    outcome = TrialOutcome(number=number, status=status, parameters={}, value=values[-1])
    assessor.ended(outcome, reports(values))


# ── median stop ─────────────────────────────────────────────────────────────────────────────────
def nni_median_stop(completed: Sequence[Sequence[float]], history: Sequence[float], *, maximize: bool) -> bool:
    """Whether NNI's Medianstop calls the trial bad: its best against the median of running averages."""
    count = len(history)
    averages = sorted(sum(values[:count]) / count for values in completed if len(values) >= count)
    if not averages:
        return False
    if maximize:
        return max(history) < averages[(len(averages) - 1) // 2]
    return min(history) > averages[len(averages) // 2]


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("seed", range(20))
def test_median_stop_decides_as_nni_does(goal: Goal, seed: int) -> None:
    rng = random.Random(seed)
    assessor = MedianStop(Objective(metric="default", goal=goal), min_trials=1)
    completed: list[list[float]] = []
    for number in range(1, 25):
        curve = [rng.random() + 1 / (step + 1) for step in range(rng.randint(3, 9))]
        stopped = False
        for length in range(1, len(curve) + 1):
            verdict = assessor.assess(number, reports(curve[:length]))
            expected = nni_median_stop(completed, curve[:length], maximize=goal is Goal.MAXIMIZE)
            assert isinstance(verdict, Stop) == expected
            stopped = stopped or expected
            if stopped:
                break
        if not stopped:
            completed.append(curve)
            end(assessor, number, curve)


# ── curve fitting ───────────────────────────────────────────────────────────────────────────────
def test_a_trial_with_few_points_goes_on() -> None:
    assessor = CurveFitting(Objective(metric="default", goal=Goal.MAXIMIZE), max_step=20)
    assert isinstance(assessor.assess(1, reports([1])), Keep)


def test_a_curve_that_is_not_settled_predicts_nothing() -> None:
    assessor = CurveFitting(Objective(metric="default", goal=Goal.MAXIMIZE), max_step=20)
    end(assessor, 1, [300.0])
    assert isinstance(assessor.assess(2, reports(UNSETTLED)), Keep)
    assert predict(list(map(float, UNSETTLED)), 21) is None


FIRST_PARAMETERS = {
    "vap": (-0.622028, -0.470050, 0.042322),
    "pow3": (0.84, 0.52, 0.01),
    "linear": (1.0, 0.0),
    "logx_linear": (0.378106, 0.046506),
    "dr_hill_zero_background": (0.772320, 0.586449, 2.460843),
    "log_power": (0.77, 2.98, -0.51),
    "pow4": (0.1, 200.0, 0.0, 0.8),
    "mmf": (0.7, 0.1, 0.01, 5.0),
    "exp4": (0.7, 0.8, -0.8, 0.3),
    "ilog2": (0.78, 0.43),
    "weibull": (0.7, 0.1, 0.01, 1.0),
    "janoschek": (0.73, 0.07, 0.355, 0.46),
}


def test_the_curves_are_those_of_nni() -> None:
    """Its unit test: two of them, and the equally weighted mean of all, at its first parameters."""
    values = {place: {c.name: c.of(np.float64(place), *FIRST_PARAMETERS[c.name]) for c in CURVES} for place in (9, 15)}
    assert values[9]["vap"] == pytest.approx(0.5591906328335763)
    assert values[15]["logx_linear"] == pytest.approx(1.0704360293379522)
    assert np.mean(list(values[9].values())) == pytest.approx(1.1543379521172443)
    assert np.mean(list(values[15].values())) == pytest.approx(1.6949395581692737)


# ── fits ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("curve", [c for c in CURVES if c.name != "ilog2"], ids=lambda c: c.name)
def test_a_curve_of_a_family_is_found_again(curve: Curve) -> None:
    """One whose bend is in the list, shifted and stretched: what it gives later is told to the last digits."""
    bends = curve.bends(20.0)
    bend = iter(bends[len(bends) // 2])
    parameters = [next(bend) if given is None else given for given in curve.columns[-1]]
    values = [3.0 * float(curve.of(np.float64(place), *parameters)) for place in range(1, 21)]
    explained, known, ends = Fits(12, 20).of(np.array(values[:12]))
    place = CURVES.index(curve)
    assert explained[place] == pytest.approx(float(np.square(values[:12]).sum()))
    assert (known[place], ends[place]) == pytest.approx((values[11], values[19]))


@given(
    values=st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)), min_size=1, max_size=80),
    unit=st.integers(-8, 8).map(lambda power: 2.0**power),
)
def test_a_prediction_follows_the_unit_of_the_values(values: list[float], unit: float) -> None:
    predicted = predict(values, 100)
    assert predict([unit * value for value in values], 100) == (None if predicted is None else unit * predicted)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e300])
def test_values_that_are_no_numbers_predict_nothing(wrong: float) -> None:
    assert predict([1.0, 0.5, wrong, 0.4, 0.3, 0.2], 20) is None


def test_a_long_course_is_fitted_at_some_of_its_reports() -> None:
    predicted = predict([1 - 0.9 ** (place / 100) for place in range(1, 2001)], 4000)
    assert predicted == pytest.approx(1.0, abs=0.05)


# ── the rest of the rules ───────────────────────────────────────────────────────────────────────
def noisy_curve(level: float, *, count: int = 12) -> list[float]:
    rng = random.Random(level)
    return [level * (1 - 0.8 * 0.7**step) + 0.01 * rng.random() for step in range(count)]


@pytest.mark.parametrize("goal", Goal)
def test_a_settled_curve_that_ends_far_from_the_best_is_stopped(goal: Goal) -> None:
    sign = 1 if goal is Goal.MAXIMIZE else -1
    assessor = CurveFitting(Objective(metric="default", goal=goal), max_step=12)
    end(assessor, 1, [sign * 0.9])
    verdicts = [
        assessor.assess(2, reports([sign * value for value in noisy_curve(0.4)[:length]])) for length in range(6, 13)
    ]
    stops = [verdict for verdict in verdicts if isinstance(verdict, Stop)]
    good = [
        assessor.assess(3, reports([sign * value for value in noisy_curve(1.0)[:length]])) for length in range(6, 13)
    ]
    assert stops
    assert "the best so far" in stops[0].message
    assert all(isinstance(verdict, Keep) for verdict in good)
