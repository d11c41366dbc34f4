"""The advisors that have a name. Importing this imports none of them: the service checks options from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner_service.advisors.base import Advisor
from tuner_service.domain.algorithm_options import (
    AlgorithmOption,
    RegisteredAlgorithm,
    check_options,
    contradictions,
    registered_class,
)
from tuner_service.domain.errors import Fault
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace

MOST_STEPS = 2**53


def _step_option(name: str, default: int, meaning: str) -> AlgorithmOption:
    return AlgorithmOption(name=name, default=default, low=1, high=MOST_STEPS, meaning=meaning)


RUNGS = (
    _step_option("min_step", 1, "the step of the first rung, where every trial rests"),
    _step_option("max_step", 81, "the step with which a trial is done; from the last rung on it runs to its end"),
    AlgorithmOption(
        name="reduction_factor",
        default=3,
        low=2,
        high=1_000,
        meaning="one of so many is promoted from a rung, and runs so many times as far",
    ),
)
POPULATION = (
    AlgorithmOption(
        name="population_size", default=10, low=2, high=10_000, meaning="trials that are alive at a time, beside forks"
    ),
    _step_option("interval", 5, "steps after which a trial rests and is compared with the others"),
    _step_option("max_step", 100, "the step with which a trial is done; its last interval runs to its end"),
    AlgorithmOption(
        name="quantile",
        default=0.25,
        low=0.0,
        high=0.5,
        meaning="the portion that is replaced, by forks of as many of the best",
    ),
    AlgorithmOption(
        name="explored",
        default="",
        meaning="names of the parameters that a fork changes, with commas between; empty: all numbers",
    ),
)
RESTS_BEFORE_ITS_END = (("min_step", "max_step"),)
IS_COMPARED_BEFORE_ITS_END = (("interval", "max_step"),)

ADVISORS = {
    algorithm.name: algorithm
    for algorithm in (
        RegisteredAlgorithm(
            name="auto",
            home="tuner_service.advisors.auto:AutoAdvisor",
            meaning="a model of parameters and reports proposes, and stops what it believes to end badly; the default",
            options=(
                AlgorithmOption(
                    name="reduction_factor",
                    default=3,
                    low=2,
                    high=1_000,
                    meaning="at each rung the one of so many that is believed to end best goes on",
                ),
                AlgorithmOption(
                    name="n_startup_trials",
                    default=10,
                    low=2,
                    high=100_000,
                    meaning="trials that have reported before the model is used; until then, random draws",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="asha_promote",
            home="tuner_service.advisors.asha_promote:AshaPromote",
            meaning="asynchronous successive halving: trials rest at rungs, and the best of each rung go on",
            options=RUNGS,
            below=RESTS_BEFORE_ITS_END,
        ),
        RegisteredAlgorithm(
            name="hyperband",
            home="tuner_service.advisors.hyperband:Hyperband",
            meaning="brackets of successive halving, each with another trade of many trials against long ones",
            options=RUNGS,
            below=RESTS_BEFORE_ITS_END,
        ),
        RegisteredAlgorithm(
            name="bohb",
            home="tuner_service.advisors.bohb:Bohb",
            meaning="Hyperband whose trials are proposed by a model of the highest rung with enough results",
            below=RESTS_BEFORE_ITS_END,
            options=(
                *RUNGS,
                AlgorithmOption(
                    name="model",
                    default="tpe",
                    choices=("tpe", "gp"),
                    meaning="what proposes parameters: a Parzen estimator or a Gaussian process",
                ),
                AlgorithmOption(
                    name="min_results",
                    default=8,
                    low=2,
                    high=100_000,
                    meaning="results that a rung must have before its model is asked",
                ),
                AlgorithmOption(
                    name="random_fraction",
                    default=0.33,
                    low=0.0,
                    high=1.0,
                    meaning="the portion of trials that are drawn at random all the same",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="pbt",
            home="tuner_service.advisors.pbt:Pbt",
            meaning="population based training: bad trials go on from checkpoints of good ones, with other parameters",
            below=IS_COMPARED_BEFORE_ITS_END,
            options=(
                *POPULATION,
                AlgorithmOption(
                    name="resample_probability",
                    default=0.25,
                    low=0.0,
                    high=1.0,
                    meaning="how often a fork draws a parameter anew instead of changing it a little",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="pb2",
            home="tuner_service.advisors.pb2:Pb2",
            meaning="population based training whose changes come from a Gaussian process over time and parameters",
            options=POPULATION,
            below=IS_COMPARED_BEFORE_ITS_END,
        ),
    )
}


def check_advisor_args(name: str, args: Any) -> Sequence[Fault]:
    """Every fault, pointers relative to ``{name: …, args: …}``; imports no algorithm."""
    return check_options(ADVISORS, name, args, kind="advisor") or contradictions(ADVISORS, name, args)


def create_advisor(name: str, args: dict[str, Any], *, space: SearchSpace, objective: Objective) -> Advisor:
    """The advisor of that name. InputError with every fault of ``args``."""
    advisor: Advisor = registered_class(ADVISORS, name, args, kind="advisor")(space, objective, **args)
    return advisor
