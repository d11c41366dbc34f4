"""The assessors that have a name. Importing this imports none of them: the service checks options from it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tuner_service.assessors.base import Assessor
from tuner_service.domain.algorithm_options import AlgorithmOption, RegisteredAlgorithm, check_options
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Objective

ASSESSORS = {
    algorithm.name: algorithm
    for algorithm in (
        RegisteredAlgorithm(
            name="median_stop",
            home="tuner_service.assessors.median_stop:MedianStop",
            meaning="stops a trial whose best value so far is worse than the median of earlier trials' averages",
            options=(
                AlgorithmOption(
                    name="start_step",
                    default=0,
                    low=0,
                    high=2**53,
                    meaning="no trial is stopped before this step",
                ),
                AlgorithmOption(
                    name="min_trials",
                    default=5,
                    low=1,
                    high=1_000_000,
                    meaning="how many trials must have succeeded and reported at a step before one is stopped there",
                ),
            ),
        ),
    )
}


def check_assessor_args(name: str, args: Any) -> Sequence[Fault]:
    """Every fault, pointers relative to ``{name: …, args: …}``; imports no algorithm."""
    return check_options(ASSESSORS, name, args, kind="assessor")


def create_assessor(name: str, args: dict[str, Any], *, objective: Objective) -> Assessor:
    """The assessor of that name. InputError with every fault of ``args``."""
    faults = check_assessor_args(name, args)
    if faults:
        raise InputError(faults)
    module, _, attribute = ASSESSORS[name].home.partition(":")
    assessor: Assessor = getattr(import_module(module), attribute)(objective, **args)
    return assessor
