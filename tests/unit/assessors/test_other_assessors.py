"""What each of the rules decides, in numbers that can be worked out by hand."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from tuner_service.assessors.auto import LEAST_TRIALS, choose_assessor
from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.assessors.registry import create_assessor
from tuner_service.assessors.wilcoxon import _probability_of_error
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus


def an_assessor(name: str, goal: Goal = Goal.MINIMIZE, **args: Any) -> Assessor:
    return create_assessor(name, args, objective=Objective(metric="loss", goal=goal))


def reports(*values: float, first: int = 1) -> list[Report]:
    return [Report(step=step, value=value) for step, value in enumerate(values, start=first)]


def judged(assessor: Assessor, trial: int, values: Sequence[float], *, first: int = 1) -> int | None:
    """The step at which the trial is stopped."""
    told = reports(*values, first=first)
    for length in range(1, len(told) + 1):
        verdict = assessor.assess(trial, told[:length])
        if isinstance(verdict, Stop):
            assert str(told[length - 1].step) in verdict.message or "folds" in verdict.message
            return told[length - 1].step
    return None


def end(assessor: Assessor, number: int, *values: float, status: TrialStatus = TrialStatus.SUCCEEDED) -> None:
    outcome = TrialOutcome(number=number, status=status, parameters={}, value=values[-1])
    assessor.ended(outcome, reports(*values))


# ── asha ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("goal", Goal)
def test_asha_lets_the_best_third_go_on_from_each_rung(goal: Goal) -> None:
    sign = 1 if goal is Goal.MINIMIZE else -1
    asha = an_assessor("asha", goal, min_step=2, reduction_factor=3)
    stops = [judged(asha, n, [sign * 9.0, sign * value]) for n, value in enumerate([5.0, 6.0, 7.0, 4.0, 4.5, 3.0], 1)]
    # Of 3 the best 1 goes on, of 4 and more the best 2.
    assert stops == [None, None, 2, None, None, None]
    assert judged(asha, 7, [sign * 0.0, sign * 6.5]) == 2


def test_asha_counts_the_highest_of_the_rungs_that_a_trial_passed_at_once() -> None:
    asha = an_assessor("asha", min_step=1, reduction_factor=3)
    for number, value in enumerate([1.0, 2.0], 1):
        assert judged(asha, number, [value], first=10) is None
    assert judged(asha, 3, [3.0], first=11) == 11
    assert judged(asha, 4, [9.0]) is None, "at the first rung it is the first"


def test_asha_gives_a_trial_one_verdict_a_rung() -> None:
    asha = an_assessor("asha", min_step=1, reduction_factor=2)
    assert judged(asha, 1, [1.0, 1.0, 9.0]) is None, "no rung lies at step 3"
    end(asha, 1, 1.0, 1.0, 9.0)
    assert judged(asha, 2, [2.0]) == 1


def test_asha_takes_nan_for_the_worst() -> None:
    asha = an_assessor("asha", reduction_factor=2)
    assert judged(asha, 1, [5.0]) is None
    assert judged(asha, 2, [math.nan]) == 1


# ── percentile ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("goal", Goal)
def test_percentile_stops_what_is_not_among_the_best(goal: Goal) -> None:
    sign = 1 if goal is Goal.MINIMIZE else -1
    percentile = an_assessor("percentile", goal, percentile=25.0, min_trials=5)
    for number, value in enumerate([1.0, 2.0, 3.0, 4.0, 5.0], 1):
        end(percentile, number, sign * value)
    assert judged(percentile, 8, [sign * 2.0]) is None
    assert judged(percentile, 9, [sign * 2.01]) == 1


def test_percentile_compares_best_values_so_far_and_not_before_its_step() -> None:
    percentile = an_assessor("percentile", percentile=50.0, min_trials=1, start_step=2)
    end(percentile, 1, 3.0, 2.0, 8.0)
    end(percentile, 2, 0.0, status=TrialStatus.FAILED)
    assert judged(percentile, 3, [9.0, 2.0, 9.0]) is None
    assert judged(percentile, 4, [9.0, 9.0]) == 2


def test_percentile_lies_between_two_values_and_is_the_lower_where_the_next_is_none() -> None:
    percentile = an_assessor("percentile", percentile=50.0, min_trials=2)
    end(percentile, 1, 1.0)
    end(percentile, 2, 2.0)
    assert judged(percentile, 3, [1.5]) is None
    assert judged(percentile, 4, [1.51]) == 1
    end(percentile, 5, math.nan)
    end(percentile, 6, math.nan)
    assert judged(percentile, 7, [2.1]) == 1


# ── threshold and patience ──────────────────────────────────────────────────────────────────────
def test_threshold_stops_what_leaves_its_bounds() -> None:
    threshold = an_assessor("threshold", lower=0.0, upper=1.0, start_step=2)
    assert judged(threshold, 1, [7.0, 0.5, 1.0, 0.0]) is None
    assert judged(threshold, 2, [0.5, 1.1]) == 2
    assert judged(threshold, 3, [0.5, -0.1]) == 2
    assert judged(threshold, 4, [0.5, math.nan]) == 2
    assert judged(an_assessor("threshold", stop_on_nan=False), 5, [math.nan]) is None


@pytest.mark.parametrize("goal", Goal)
def test_patience_stops_what_has_not_become_better(goal: Goal) -> None:
    sign = 1 if goal is Goal.MINIMIZE else -1
    patience = an_assessor("patience", goal, patience=2, min_delta=0.1)
    assert judged(patience, 1, [sign * value for value in (1.0, 0.95, 0.85, 0.8, 0.7)]) is None
    assert judged(patience, 2, [sign * value for value in (1.0, 0.95, 0.92)]) == 3
    assert judged(patience, 3, [math.nan, math.nan]) == 2
    assert judged(an_assessor("patience", goal, patience=2, start_step=5), 4, [sign * 1.0] * 6) == 5
    end(patience, 2, 1.0)


def test_patience_reads_the_reports_it_did_not_see() -> None:
    patience = an_assessor("patience", patience=3)
    told = reports(1.0, 0.5, 0.6, 0.7, 0.8)
    assert isinstance(patience.assess(1, told[:4]), Keep)
    assert isinstance(patience.fork().assess(1, told), Stop)
    assert isinstance(patience.assess(1, told[:2]), Keep), "asked about fewer, it forgets what came later"


# ── wilcoxon ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("goal", Goal)
def test_wilcoxon_stops_what_is_surely_worse_than_the_best_over_folds(goal: Goal) -> None:
    sign = 1 if goal is Goal.MINIMIZE else -1
    wilcoxon = an_assessor("wilcoxon", goal, p_threshold=0.1)
    folds = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    end(wilcoxon, 1, *[sign * value for value in folds], sign * 0.3)
    assert judged(wilcoxon, 2, [sign * (value + 0.1 + 0.01 * i) for i, value in enumerate(folds)]) == 4
    assert judged(wilcoxon, 3, [sign * (value - 0.1) for value in folds]) is None
    assert judged(wilcoxon, 4, [sign * value for value in folds]) is None


def test_wilcoxon_compares_with_the_best_trial_alone() -> None:
    wilcoxon = an_assessor("wilcoxon", min_folds=2)
    assert judged(wilcoxon, 1, [9.0, 9.0]) is None
    end(wilcoxon, 1, 1.0, 1.0)
    end(wilcoxon, 2, 5.0, 5.0)
    end(wilcoxon, 3, 0.1, status=TrialStatus.FAILED)
    assert judged(wilcoxon, 4, [1.0, math.nan]) == 2
    assert judged(wilcoxon, 5, [1.0, 1.0, 7.0]) is None, "the best trial had no third fold"


DIFFERENCE = st.one_of(st.floats(-3, 3), st.integers(-2, 2))


# Between nine and thirteen differences with ties SciPy tries all signs, which takes it a second each time.
@settings(deadline=None, max_examples=30)
@given(st.lists(DIFFERENCE, min_size=1, max_size=8) | st.lists(DIFFERENCE, min_size=14, max_size=120))
@example([0.5] * 101)
@example([0.5] * 10)
def test_wilcoxon_is_as_sure_as_scipys_test(differences: list[float]) -> None:
    expected = (
        stats.wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue if any(differences) else 1
    )
    assert _probability_of_error(differences) == pytest.approx(expected, rel=1e-9)


# ── auto, and the cost of a verdict ─────────────────────────────────────────────────────────────
def test_auto_chooses_successive_halving_where_there_are_trials_to_compare() -> None:
    assert choose_assessor(trials=None).name == "asha"
    assert choose_assessor(trials=LEAST_TRIALS).name == "asha"
    few = choose_assessor(trials=LEAST_TRIALS - 1)
    assert few.name is None
    assert "too few" in few.reason


@pytest.mark.parametrize("name", ["median_stop", "asha", "percentile", "threshold", "patience", "wilcoxon"])
def test_a_verdict_at_a_thousand_trials_of_twenty_reports_costs_microseconds(name: str) -> None:
    """Best of several, on a machine that others share; `benchmarks` measures it."""
    assessor = an_assessor(name)
    curve = reports(*[1.0 / step for step in range(1, 21)])
    for number in range(1, 1001):
        if name == "asha":
            assessor.assess(number, curve[:1])
        outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={}, value=0.05)
        assessor.ended(outcome, curve)
    times = []
    for number in range(2001, 2051):
        started = time.process_time()
        for length in range(1, 21):
            assessor.assess(number, curve[:length])
        times.append((time.process_time() - started) / 20)
    assert min(times) < 100e-6
