"""The tuners that have a name. Importing this imports none of them: the service checks options from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tuner_service.domain.algorithm_options import AlgorithmOption, RegisteredAlgorithm, check_options, registered_class
from tuner_service.domain.errors import Fault
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.tuners.base import Tuner

SOBOL_DIMENSIONS = 21_201  # of SciPy's direction numbers; a space of more cannot be searched by quasi_random
GP_OBJECTIVES = 4  # of gp through Optuna: with more the time and the memory of a suggestion grow beyond any machine
_STARTUP = AlgorithmOption(
    name="n_startup_trials",
    default=10,
    low=0,
    high=100_000,
    meaning="ended trials before the model is used; until then, random draws",
)


def _population(default: int, meaning: str) -> AlgorithmOption:
    """Of one trial there is nothing to be chosen from. 0, where it is the default: the tuner's own choice."""
    beside = None if default else 0
    return AlgorithmOption(name="population_size", default=default, low=2, high=10_000, beside=beside, meaning=meaning)


def _share(name: str, default: float, meaning: str) -> AlgorithmOption:
    return AlgorithmOption(name=name, default=default, low=0.0, high=1.0, meaning=meaning)


_NSGA_OPTIONS = (
    _population(50, "trials of one generation; the first one is drawn at random"),
    _share("crossover_prob", 0.9, "how often a child has two parents"),
    _share("swapping_prob", 0.5, "how often a parameter comes from the second parent"),
)
TUNERS = {
    algorithm.name: algorithm
    for algorithm in (
        RegisteredAlgorithm(
            name="auto",
            home="tuner_service.tuners.auto:AutoTuner",
            meaning="a Gaussian process and tpe, whichever predicts better; the default",
            several_objectives=True,
        ),
        RegisteredAlgorithm(
            name="random",
            home="tuner_service.tuners.random_search:RandomTuner",
            meaning="independent draws; no repetition while the space has others",
            several_objectives=True,
        ),
        RegisteredAlgorithm(
            name="quasi_random",
            home="tuner_service.tuners.quasi_random:QuasiRandomTuner",
            meaning="points of a scrambled Sobol sequence, which fill the space evenly",
            several_objectives=True,
        ),
        RegisteredAlgorithm(
            name="grid",
            home="tuner_service.tuners.grid:GridTuner",
            meaning="every point of the grid once, then the end",
            several_objectives=True,
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
            name="batch",
            home="tuner_service.tuners.batch:BatchTuner",
            meaning="the parameters of a given list, each once, then the end",
            several_objectives=True,
            options=(
                AlgorithmOption(
                    name="parameters", default=(), low=1, high=100_000, meaning="the list; each inside the search space"
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="tpe",
            home="tuner_service.tuners.tpe:TpeTuner",
            meaning="tree-structured Parzen estimator, through Optuna: multivariate, grouped, constant liar",
            several_objectives=True,
            options=(
                _STARTUP,
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
        RegisteredAlgorithm(
            name="gp",
            home="tuner_service.tuners.gp:GpTuner",
            meaning="Gaussian process with log expected improvement, through Optuna or BoTorch",
            several_objectives=True,
            options=(
                _STARTUP,
                AlgorithmOption(
                    name="deterministic_objective",
                    default=False,
                    meaning="equal parameters give equal values: no noise is modelled",
                ),
                AlgorithmOption(
                    name="backend",
                    default="optuna",
                    choices=("optuna", "botorch"),
                    meaning="botorch: for many objectives or a GPU; needs the extra of that name",
                ),
            ),
        ),
        RegisteredAlgorithm(
            name="cma_es",
            home="tuner_service.tuners.cma_es:CmaEsTuner",
            meaning="covariance matrix adaptation: numbers by a moving normal distribution, choices by their frequency",
            options=(
                _population(0, "trials of one generation; 0: 4 + 3 ln(coordinates)"),
                AlgorithmOption(
                    name="sigma",
                    default=1 / 6,
                    low=1e-6,
                    high=1.0,
                    meaning="the deviation it begins with; 1 is the whole range",
                ),
                replace(_STARTUP, default=1),
            ),
        ),
        RegisteredAlgorithm(
            name="nsga2",
            home="tuner_service.tuners.nsga:Nsga2Tuner",
            meaning="genetic search that keeps the front and spreads along it, through Optuna",
            several_objectives=True,
            options=_NSGA_OPTIONS,
        ),
        RegisteredAlgorithm(
            name="nsga3",
            home="tuner_service.tuners.nsga:Nsga3Tuner",
            meaning="the same with reference directions, for four objectives or more",
            several_objectives=True,
            options=_NSGA_OPTIONS,
        ),
        RegisteredAlgorithm(
            name="evolution",
            home="tuner_service.tuners.evolution:EvolutionTuner",
            meaning="regularized evolution: the best of a sample has a child, the oldest die",
            options=(
                _population(20, "the newest trials with a value, from which parents come"),
                AlgorithmOption(
                    name="sample_size",
                    default=5,
                    low=1,
                    high=10_000,
                    meaning="of them are drawn; the best has a child",
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
    tuner: Tuner = registered_class(TUNERS, name, args, kind="tuner")(space, objective, **args)
    return tuner
