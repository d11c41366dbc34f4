"""Scripted runs of NNI's tuners whose answers its documentation fixes give the same ones here."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted
from tuner_service.tuners.registry import create_tuner

MOST_ASKED = 200
# The search spaces of NNI's pages on Grid Search and on the types, with every point that its rules allow.
GRIDS: dict[str, tuple[dict[str, Any], set[tuple[Any, ...]]]] = {
    "choices": (
        {"x": {"_type": "choice", "_value": [5, 7]}, "y": {"_type": "choice", "_value": ["a", "b", "c"]}},
        set(itertools.product([5, 7], ["a", "b", "c"])),
    ),
    "randint leaves its upper bound out": (
        {"x": {"_type": "randint", "_value": [1, 4]}, "y": {"_type": "choice", "_value": [True, False]}},
        set(itertools.product([1, 2, 3], [True, False])),
    ),
    "quniform has both ends": (
        {"x": {"_type": "choice", "_value": [5, 7]}, "z": {"_type": "quniform", "_value": [2, 3, 1]}},
        set(itertools.product([5, 7], [2.0, 3.0])),
    ),
    "quniform is clipped": (
        {"z": {"_type": "quniform", "_value": [0, 10, 2.5]}},
        {(0.0,), (2.5,), (5.0,), (7.5,), (10.0,)},
    ),
}


def script(name: str, space: dict[str, Any], **args: Any) -> list[Parameters]:
    """What a search proposes until it says that there is no more; each trial succeeds before the next is asked for."""
    tuner = create_tuner(name, args, space=parse_search_space(space), objective=Objective(metric="default"))
    found: list[Parameters] = []
    for number in range(1, MOST_ASKED):
        suggestion = tuner.suggest(number, random.Random(number))
        if isinstance(suggestion, Exhausted):
            return found
        assert isinstance(suggestion, dict)
        found.append(suggestion)
        tuner.pending(number, suggestion)
        outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=suggestion, value=1.0 / number)
        tuner.observe(outcome)
    raise AssertionError(f"{name} did not come to its end within {MOST_ASKED} trials")


@pytest.mark.parametrize("case", list(GRIDS))
def test_grid_search_goes_through_every_point_once_and_ends(case: str) -> None:
    space, expected = GRIDS[case]
    found = [tuple(parameters.values()) for parameters in script("grid", space)]
    assert len(found) == len(expected)
    assert set(found) == expected


def test_batch_gives_its_list_in_its_order_and_ends() -> None:
    points = [{"optimizer": "Adam", "lr": 0.0001}, {"optimizer": "SGD", "lr": 0.01}, {"optimizer": "Adam", "lr": 0.5}]
    space = {
        "optimizer": {"_type": "choice", "_value": ["Adam", "SGD"]},
        "lr": {"_type": "uniform", "_value": [0.0001, 0.5]},
    }
    assert script("batch", space, parameters=points) == points


@pytest.mark.parametrize("name", ["random", "tpe", "evolution"])
def test_randint_and_clipped_quantised_values_stay_inside_while_a_tuner_learns(name: str) -> None:
    space = {
        "units": {"_type": "randint", "_value": [4, 8]},
        "dropout": {"_type": "quniform", "_value": [0.25, 1.0, 0.5]},
        "batch": {"_type": "qloguniform", "_value": [10, 100, 30]},
    }
    tuner = create_tuner(name, {}, space=parse_search_space(space), objective=Objective(metric="default"))
    for number in range(1, 41):
        suggestion = tuner.suggest(number, random.Random(number))
        assert isinstance(suggestion, dict)
        assert suggestion["units"] in {4, 5, 6, 7}
        assert suggestion["dropout"] in {0.25, 0.5, 1.0}  # round(x / q) * q, clipped into the range
        assert suggestion["batch"] in {10, 30, 60, 90, 100}
        tuner.pending(number, suggestion)
        outcome = TrialOutcome(
            number=number, status=TrialStatus.SUCCEEDED, parameters=suggestion, value=float(suggestion["units"])
        )
        tuner.observe(outcome)
