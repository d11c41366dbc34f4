"""The tuners that have a name. Importing this imports none of them: the service checks options from it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tuner_service.domain.algorithm_options import AlgorithmOption, RegisteredAlgorithm, check_options
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.tuners.base import Tuner

TUNERS = {
    algorithm.name: algorithm
    for algorithm in (
        RegisteredAlgorithm(
            name="random",
            home="tuner_service.tuners.random_search:RandomTuner",
            meaning="independent draws; no repetition while the space has others",
        ),
        RegisteredAlgorithm(
            name="grid",
            home="tuner_service.tuners.grid:GridTuner",
            meaning="every point of the grid once, then the end",
            options=(
                AlgorithmOption(
                    name="points",
                    default=10,
                    low=1,
                    high=100_000,
                    meaning="into how many values a continuous parameter is divided",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="tpe",
            home="tuner_service.tuners.tpe:TpeTuner",
            meaning="tree-structured Parzen estimator, through Optuna: multivariate, grouped, constant liar",
            options=(
                AlgorithmOption(
                    name="n_startup_trials",
                    default=10,
                    low=0,
                    high=100_000,
                    meaning="finished trials before the model is used; until then, random draws",
                ),
                AlgorithmOption(
                    name="n_ei_candidates",
                    default=24,
                    low=1,
                    high=10_000,
                    meaning="candidates from which the model picks one",
                ),
                AlgorithmOption(
                    name="multivariate",
                    default=True,
                    meaning="model parameters together; false: one by one",
                ),
                AlgorithmOption(
                    name="constant_liar",
                    default=True,
                    meaning="keep away from trials that are still running",
                ),
            ),
        ),
    )
}


def check_tuner_args(name: str, args: Any) -> Sequence[Fault]:
    """Every fault, pointers relative to ``{name: …, args: …}``; imports no algorithm."""
    return check_options(TUNERS, name, args, kind="tuner")


def create_tuner(name: str, args: dict[str, Any], *, space: SearchSpace, objective: Objective) -> Tuner:
    """The tuner of that name. InputError with every fault of ``args``."""
    faults = check_tuner_args(name, args)
    if faults:
        raise InputError(faults)
    module, _, attribute = TUNERS[name].home.partition(":")
    tuner: Tuner = getattr(import_module(module), attribute)(space, objective, **args)
    return tuner
