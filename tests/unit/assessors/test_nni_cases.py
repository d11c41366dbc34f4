"""NNI's own cases of its two assessors give the same decisions here; its rules are written down again beside them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.assessors.curve_fitting import CURVES, CurveFitting, predict
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
    assert predict(tuple(map(float, UNSETTLED)), 21) is None


def test_the_curves_are_those_of_nni() -> None:
    """Its unit test: two of them, and the equally weighted mean of all, at their first parameters."""
    values = {place: {c.name: c.of(np.float64(place), *np.array(c.start)) for c in CURVES} for place in (9, 15)}
    assert values[9]["vap"] == pytest.approx(0.5591906328335763)
    assert values[15]["logx_linear"] == pytest.approx(1.0704360293379522)
    assert np.mean(list(values[9].values())) == pytest.approx(1.1543379521172443)
    assert np.mean(list(values[15].values())) == pytest.approx(1.6949395581692737)


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
