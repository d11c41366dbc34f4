"""How a fork's parameters differ from its source's."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tuner_service.advisors.pb2 import Pb2
from tuner_service.advisors.pbt import Member, Pbt, scaled
from tuner_service.domain.experiment import Objective
from tuner_service.domain.ranges import FloatRange, IntRange
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Decision, DecisionKind, Report

NETWORK = {
    "width": {"type": "int", "low": 1, "high": 1_000_000},
    "layer": {
        "_type": "choice",
        "_value": ["none", {"_name": "conv", "kernel": {"_type": "randint", "_value": [1, 999]}}],
    },
}


@pytest.mark.parametrize(
    ("value", "factor", "expected"),
    [(64, 1.2, 80), (64, 0.8, 48), (32, 1.2, 32), (256, 1.2, 256), (16, 0.8, 16), (240, 1.2, 256)],
)
def test_a_stepped_integer_moves_to_the_nearest_of_its_values(value: int, factor: float, expected: int) -> None:
    assert scaled(IntRange(low=16, high=260, step=16), value, factor) == expected


@pytest.mark.parametrize(("value", "factor", "expected"), [(0.3, 1.2, 0.3), (0.3, 3.0, 0.3), (0.3, 0.4, 0.0)])
def test_a_stepped_number_moves_to_one_of_its_values_and_not_to_a_bound_that_is_none(
    value: float, factor: float, expected: float
) -> None:
    assert scaled(FloatRange(low=0.0, high=0.5, step=0.3), value, factor) == expected


@pytest.mark.parametrize(("value", "factor"), [(10, 1.2), (10, 0.8), (2**53, 0.8), (-7, 1.2), (2**53 - 1, 1.2)])
def test_an_integer_is_rounded_and_stays_inside(value: int, factor: float) -> None:
    range_ = IntRange(low=-(2**53), high=2**53)
    assert scaled(range_, value, factor) == min(max(round(value * factor), range_.low), range_.high)


@pytest.mark.parametrize("kind", [Pbt, Pb2])
def test_a_fork_keeps_what_shapes_its_network_though_the_space_has_changed(kind: type[Pbt]) -> None:
    before = parse_search_space({**NETWORK, "lr": {"type": "float", "low": 0, "high": 1}})
    advisor = kind(before, Objective(metric="loss"), explored="lr")
    narrower = parse_search_space(
        {**NETWORK, "lr": {"type": "float", "low": 0, "high": 0.1}, "decay": {"type": "float", "low": 0, "high": 1}}
    )
    advisor.update_search_space(narrower)
    shape = {"width": 371_293, "layer": {"_name": "conv", "kernel": 311}}
    fork = advisor.explore(Member(parameters={**shape, "lr": 0.9}, step=5, loss=1.0), random.Random(1))
    assert narrower.contains(fork)
    assert {name: fork[name] for name in shape} == shape


def test_results_that_are_further_apart_than_a_float_holds_are_modelled() -> None:
    space = parse_search_space({"lr": {"type": "float", "low": 0, "high": 1}})
    advisor = Pb2(space, Objective(metric="loss"), population_size=4, interval=5)
    far = (1.7e308, -1.7e308, 1.0, 1.7e308)
    for number in range(1, 5):
        parameters = {"lr": number / 5}
        advisor.decided(Decision(kind=DecisionKind.START, number=number, parameters=parameters))
        advisor.rested(number, [Report(step=5, value=far[number - 1])])
        advisor.decided(Decision(kind=DecisionKind.PROMOTE, number=number))
        advisor.rested(number, [Report(step=10, value=-far[number - 1])])
    found = advisor.explore(Member(parameters={"lr": 0.5}, step=10, loss=-1.7e308), random.Random(1))
    assert space.contains(found)
    bounds = advisor._upper_bounds(np.array([advisor._features(2, loss, [0.5]) for loss in far]))
    assert np.isfinite(bounds).all()
