"""More objectives than hypervolumes can be computed for in time."""

from __future__ import annotations

import random
import time

import pytest

from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.objectives import front
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Tuner
from tuner_service.tuners.registry import create_tuner
from tuner_service.tuners.trial_notes import _front

SPACE = parse_search_space({f"x{n}": {"type": "float", "low": 0, "high": 1} for n in range(5)})
TEN = Objective(metric="m0", further=tuple(Objective(metric=f"m{n}", goal=list(Goal)[n % 2]) for n in range(1, 10)))


def values_of(parameters: Parameters) -> list[float]:
    """Nearly all of such points are on the front."""
    x = list(parameters.values())
    losses = [(x[n % 5] - n / 10) ** 2 + x[(n + 1) % 5] / 2 for n in range(10)]
    return [loss if one.goal is Goal.MINIMIZE else -loss for one, loss in zip(TEN.every, losses, strict=True)]


def outcome(number: int, parameters: Parameters) -> TrialOutcome:
    first, *further = values_of(parameters)
    return TrialOutcome(
        number=number,
        status=TrialStatus.SUCCEEDED,
        parameters=parameters,
        value=first,
        further_values=tuple(further),
    )


def told(name: str, trials: int) -> Tuner:
    tuner = create_tuner(name, {}, space=SPACE, objective=TEN)
    for number in range(1, trials + 1):
        tuner.observe(outcome(number, SPACE.sample(random.Random(number))))
    return tuner


@pytest.mark.parametrize(("name", "trials"), [("tpe", 290), ("tpe", 1_500), ("auto", 310)])
def test_ten_objectives_take_no_longer_than_a_few(name: str, trials: int) -> None:
    tuner = told(name, trials)
    tuner.suggest(1, random.Random(0))  # what has to be imported
    began = time.process_time()
    assert SPACE.contains(tuner.suggest(trials + 1, random.Random(1)))
    assert time.process_time() - began < 5


def test_what_is_suggested_is_better_by_all_weighings_than_random_draws() -> None:
    def worst_on_average(found: list[Parameters]) -> float:
        losses = [[abs(v) for v in values_of(parameters)] for parameters in found]
        return sum(max(row) for row in losses) / len(losses)

    tuner = told("tpe", 60)
    asked = [tuner.suggest(100 + n, random.Random(n)) for n in range(30)]
    drawn = [SPACE.sample(random.Random(1_000 + n)) for n in range(30)]
    assert worst_on_average([p for p in asked if isinstance(p, dict)]) < worst_on_average(drawn)


def test_a_front_of_many_objectives_is_the_same_by_arrays() -> None:
    rng = random.Random(4)
    for count in (1, 2, 30, 200):
        points = [tuple(float(rng.randrange(3)) for _ in range(5)) for _ in range(count)]
        assert _front(points) == front(points)
