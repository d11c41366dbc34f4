"""``gp`` with ``backend: botorch``: the same promises as every tuner's; BoTorch is an extra."""

from __future__ import annotations

import importlib.util
import random

import pytest

from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Tuner
from tuner_service.tuners.registry import create_tuner

HAS_BOTORCH = importlib.util.find_spec("botorch") is not None
needs_botorch = pytest.mark.skipif(not HAS_BOTORCH, reason="the extra botorch is not installed")
SPACE = parse_search_space(
    {
        "x": {"type": "float", "low": -1, "high": 1},
        "option": {"type": "categorical", "choices": ["a", "b"]},
        "y": {"type": "int", "low": 0, "high": 5, "when": {"option": "b"}},
    }
)


def a_tuner(objectives: int = 1) -> Tuner:
    further = tuple(Objective(metric=f"m{i}", goal=Goal.MAXIMIZE) for i in range(1, objectives))
    objective = Objective(metric="m0", further=further)
    return create_tuner("gp", {"backend": "botorch", "n_startup_trials": 5}, space=SPACE, objective=objective)


def live_through(tuner: Tuner, trials: int, objectives: int) -> None:
    for number in range(1, trials + 1):
        parameters = SPACE.sample(random.Random(number))
        tuner.pending(number, parameters)
        tuner.observe(outcome(number, parameters, objectives))
    tuner.pending(trials + 1, SPACE.sample(random.Random(0)))


def outcome(number: int, parameters: Parameters, objectives: int) -> TrialOutcome:
    value = None if number == 3 else (parameters["x"] - 0.3) ** 2
    further = tuple(parameters["x"] * i for i in range(1, objectives))
    status = TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED
    return TrialOutcome(number=number, status=status, parameters=parameters, value=value, further_values=further)


@needs_botorch
@pytest.mark.parametrize("objectives", [1, 2])
def test_its_suggestions_lie_inside_and_follow_from_generator_and_history(objectives: int) -> None:
    suggestions = []
    for _ in range(2):
        tuner = a_tuner(objectives)
        live_through(tuner, 7, objectives)
        suggestions.append(tuner.suggest(9, random.Random(4)))
    assert suggestions[0] == suggestions[1]
    assert isinstance(suggestions[0], dict)
    assert SPACE.contains(suggestions[0])


@pytest.mark.skipif(HAS_BOTORCH, reason="BoTorch is installed")
def test_without_botorch_it_is_refused_at_the_start_saying_what_to_install() -> None:
    with pytest.raises(SearchSpaceNotSupportedError, match=r"tuner-service\[botorch\]"):
        a_tuner()
