from __future__ import annotations

import math
import time

import pytest

from tuner_service.assessors.base import Keep, Stop
from tuner_service.assessors.median_stop import MedianStop
from tuner_service.assessors.registry import check_assessor_args
from tuner_service.assessors.step_values import STEP_LIMIT
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus


def an_assessor(goal: Goal = Goal.MINIMIZE, **options: int) -> MedianStop:
    return MedianStop(Objective(metric="loss", goal=goal), **options)


def reports(*values: float) -> list[Report]:
    return [Report(step=step, value=value) for step, value in enumerate(values, start=1)]


def end(assessor: MedianStop, *values: float, status: TrialStatus = TrialStatus.SUCCEEDED) -> None:
    outcome = TrialOutcome(number=1, status=status, parameters={}, value=values[-1])
    assessor.ended(outcome, reports(*values))


def test_a_trial_is_stopped_when_its_best_is_worse_than_the_median_of_the_running_averages() -> None:
    assessor = an_assessor(min_trials=3)
    for first in (1.0, 2.0, 3.0):
        end(assessor, first, first - 1)  # averages at step 2: 0.5, 1.5, 2.5
    assert isinstance(assessor.assess(9, reports(4.0, 1.5)), Keep)
    verdict = assessor.assess(8, reports(4.0, 1.6))
    assert isinstance(verdict, Stop)
    assert "step 2" in verdict.message
    assert "1.6" in verdict.message
    assert "1.5" in verdict.message


def test_the_best_value_so_far_counts_not_the_last() -> None:
    assessor = an_assessor(min_trials=1)
    end(assessor, 1.0, 1.0)
    assert isinstance(assessor.assess(9, reports(0.5, 7.0)), Keep)


def test_maximizing_turns_the_rule_round() -> None:
    assessor = an_assessor(Goal.MAXIMIZE, min_trials=1)
    end(assessor, 0.5)
    assert isinstance(assessor.assess(8, reports(0.6)), Keep)
    verdict = assessor.assess(9, reports(0.4))
    assert isinstance(verdict, Stop)
    assert "0.4" in verdict.message


def test_the_median_of_an_even_number_is_the_worse_of_the_middle_two() -> None:
    assessor = an_assessor(min_trials=2)
    end(assessor, 1.0)
    end(assessor, 2.0)
    assert isinstance(assessor.assess(8, reports(2.0)), Keep)
    assert isinstance(assessor.assess(9, reports(2.01)), Stop)


def test_nothing_is_stopped_before_the_start_step_or_with_too_few_trials() -> None:
    assessor = an_assessor(start_step=2, min_trials=2)
    end(assessor, 1.0, 1.0)
    assert isinstance(assessor.assess(9, reports(5.0, 5.0)), Keep)
    end(assessor, 1.0, 1.0)
    assert isinstance(assessor.assess(9, reports(5.0)), Keep)
    assert isinstance(assessor.assess(9, reports(5.0, 5.0)), Stop)


@pytest.mark.parametrize("status", [TrialStatus.FAILED, TrialStatus.CANCELED, TrialStatus.EARLY_STOPPED])
def test_only_trials_that_succeeded_are_compared_with(status: TrialStatus) -> None:
    assessor = an_assessor(min_trials=1)
    end(assessor, 1.0, status=status)
    assert isinstance(assessor.assess(9, reports(5.0)), Keep)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", list(Goal))
def test_values_that_are_not_finite_count_as_the_worst(goal: Goal, value: float) -> None:
    assessor = an_assessor(goal, min_trials=1)
    end(assessor, 1.0)
    assert isinstance(assessor.assess(9, reports(value)), Stop)
    end(assessor, value)
    end(assessor, value)
    assert isinstance(assessor.assess(10, reports(value)), Keep)


def test_sums_that_overflow_stay_ordered() -> None:
    assessor = an_assessor(min_trials=1)
    end(assessor, -1.7e308, -1.7e308, math.nan)
    assert isinstance(assessor.assess(9, reports(0.0, 0.0)), Stop)
    assert isinstance(assessor.assess(9, reports(0.0, 0.0, 0.0)), Keep)


def test_at_a_step_that_no_other_trial_reported_nothing_is_stopped() -> None:
    assessor = an_assessor(min_trials=1)
    end(assessor, 1.0)
    assert isinstance(assessor.assess(9, [Report(step=50, value=9.0)]), Keep)


def test_means_are_kept_for_a_bounded_number_of_steps() -> None:
    assessor = an_assessor(min_trials=1)
    end(assessor, *([1.0] * (STEP_LIMIT + 5)))
    assert len(assessor.state_dict()["means"]) == STEP_LIMIT


def test_a_verdict_among_a_thousand_trials_takes_microseconds() -> None:
    assessor = an_assessor()
    for number in range(1000):
        end(assessor, *(number / step for step in range(1, 21)))
    history = reports(*[0.0] * 20)
    started = time.process_time()
    for number in range(1000):
        for length in (1, 2, 10, 20):
            assessor.assess(number, history[:length])
    assert time.process_time() - started < 0.2  # 4,000 of them: 50 µs each on a very slow machine
    started = time.process_time()
    for _ in range(1000):
        assessor.fork()
    assert time.process_time() - started < 0.1


def test_options_are_checked() -> None:
    assert [fault.pointer for fault in check_assessor_args("median_stop", {"min_trials": 0, "grace": 1})] == [
        "/args/min_trials",
        "/args/grace",
    ]
    assert check_assessor_args("median", {})
