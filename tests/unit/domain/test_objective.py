"""Which of two values is better, NaN and infinity included."""

from __future__ import annotations

import math

import pytest

from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective

LOW = Objective(metric="loss")
HIGH = Objective(metric="accuracy", goal=Goal.MAXIMIZE)


@pytest.mark.parametrize(
    ("value", "than", "low", "high"),
    [
        (1.0, 2.0, True, False),
        (2.0, 1.0, False, True),
        (1.0, 1.0, False, False),
        (1.0, None, True, True),
        (math.nan, None, False, False),
        (math.nan, 1.0, False, False),
        (1.0, math.nan, True, True),
        (math.inf, 1.0, False, True),
        (-math.inf, 1.0, True, False),
        (math.inf, None, True, True),
    ],
)
def test_a_value_is_better_in_the_direction_of_the_goal(
    value: float, than: float | None, low: bool, high: bool
) -> None:
    assert LOW.better(value, than) is low
    assert HIGH.better(value, than) is high


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (AlgorithmSpec(name="tpe"), "tpe"),
        (AlgorithmSpec(class_name="mine:Tuner"), "mine:Tuner"),
        (AlgorithmSpec(), ""),
    ],
)
def test_an_algorithm_is_called_by_its_name_or_its_class(spec: AlgorithmSpec, label: str) -> None:
    assert spec.label == label
