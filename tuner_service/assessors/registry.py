"""The assessors that have a name. Importing this imports none of them: the service checks options from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner_service.assessors.base import Assessor
from tuner_service.domain.algorithm_options import (
    AlgorithmOption,
    RegisteredAlgorithm,
    check_options,
    contradictions,
    registered_class,
)
from tuner_service.domain.errors import Fault
from tuner_service.domain.experiment import Objective
from tuner_service.domain.ranges import FLOAT_LIMIT

MOST_STEPS = 2**53
START_STEP = AlgorithmOption(
    name="start_step", default=0, low=0, high=MOST_STEPS, meaning="no trial is stopped before this step"
)
MIN_TRIALS = AlgorithmOption(
    name="min_trials",
    default=5,
    low=1,
    high=1_000_000,
    meaning="how many trials must have succeeded and reported at a step before one is stopped there",
)

ASSESSORS = {
    algorithm.name: algorithm
    for algorithm in (
        RegisteredAlgorithm(
            name="median_stop",
            home="tuner_service.assessors.median_stop:MedianStop",
            meaning="stops a trial whose best value so far is worse than the median of earlier trials' averages",
            options=(START_STEP, MIN_TRIALS),
        ),
        RegisteredAlgorithm(
            name="asha",
            home="tuner_service.assessors.asha:Asha",
            meaning="asynchronous successive halving: stops a trial that is not among the best at a rung",
            options=(
                AlgorithmOption(
                    name="min_step", default=1, low=1, high=MOST_STEPS, meaning="the step of the first rung"
                ),
                AlgorithmOption(
                    name="reduction_factor",
                    default=3,
                    low=2,
                    high=1_000,
                    meaning="one of so many goes on from a rung; the next one lies so many times as far",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="percentile",
            home="tuner_service.assessors.percentile:Percentile",
            meaning="stops a trial whose best value so far is worse than a percentile of earlier trials' bests",
            options=(
                AlgorithmOption(
                    name="percentile",
                    default=25.0,
                    low=0.0,
                    high=100.0,
                    meaning="how many percent of the earlier trials it must be among, the best ones",
                ),
                START_STEP,
                MIN_TRIALS,
            ),
        ),
        RegisteredAlgorithm(
            name="threshold",
            home="tuner_service.assessors.threshold:Threshold",
            meaning="stops a trial whose value leaves given bounds",
            ascending=(("lower", "upper"),),
            options=(
                AlgorithmOption(
                    name="lower",
                    default=-FLOAT_LIMIT,
                    low=-FLOAT_LIMIT,
                    high=FLOAT_LIMIT,
                    meaning="a trial below this is stopped",
                ),
                AlgorithmOption(
                    name="upper",
                    default=FLOAT_LIMIT,
                    low=-FLOAT_LIMIT,
                    high=FLOAT_LIMIT,
                    meaning="a trial above this is stopped",
                ),
                START_STEP,
                AlgorithmOption(name="stop_on_nan", default=True, meaning="stop a trial that reports NaN"),
            ),
        ),
        RegisteredAlgorithm(
            name="patience",
            home="tuner_service.assessors.patience:Patience",
            meaning="stops a trial that has not become better for a while",
            options=(
                AlgorithmOption(
                    name="patience",
                    default=20,
                    low=1,
                    high=1_000_000,
                    meaning="reports without an improvement after which it is stopped",
                ),
                AlgorithmOption(
                    name="min_delta",
                    default=0.0,
                    low=0.0,
                    high=FLOAT_LIMIT,
                    meaning="a smaller improvement is none",
                ),
                START_STEP,
            ),
        ),
        RegisteredAlgorithm(
            name="curve_fitting",
            home="tuner_service.assessors.curve_fitting:CurveFitting",
            meaning="stops a trial whose learning curve, carried on to its end, does not come near the best so far",
            ascending=(("start_step", "max_step"),),
            options=(
                AlgorithmOption(
                    name="max_step", default=20, low=1, high=1_000_000, meaning="how many reports a whole trial makes"
                ),
                AlgorithmOption(
                    name="start_step",
                    default=6,
                    low=1,
                    high=1_000_000,
                    meaning="reports that a trial must have made before it is judged",
                ),
                AlgorithmOption(
                    name="threshold",
                    default=0.95,
                    low=1e-6,
                    high=1e6,
                    meaning="the portion of the best value that it must be expected to reach",
                ),
                AlgorithmOption(
                    name="gap", default=1, low=1, high=1_000_000, meaning="reports between two judgements of a trial"
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="wilcoxon",
            home="tuner_service.assessors.wilcoxon:Wilcoxon",
            meaning="over folds: stops a trial that is surely worse than the best one, by the signed-rank test",
            options=(
                AlgorithmOption(
                    name="p_threshold",
                    default=0.1,
                    low=0.0,
                    high=1.0,
                    meaning="the probability of error below which a trial is stopped",
                ),
                AlgorithmOption(
                    name="min_folds", default=4, low=2, high=1_000_000, meaning="folds to compare before one is stopped"
                ),
            ),
        ),
    )
}


def check_assessor_args(name: str, args: Any) -> Sequence[Fault]:
    """Every fault, pointers relative to ``{name: …, args: …}``; imports no algorithm."""
    return check_options(ASSESSORS, name, args, kind="assessor") or contradictions(ASSESSORS, name, args)


def create_assessor(name: str, args: dict[str, Any], *, objective: Objective) -> Assessor:
    """The assessor of that name. InputError with every fault of ``args``."""
    assessor: Assessor = registered_class(ASSESSORS, name, args, kind="assessor")(objective, **args)
    return assessor
