from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_spec, a_trial
from tuner_service.domain.experiment import FinalFrom, Goal, Objective
from tuner_service.domain.objectives import front, further_values, hypervolume, losses
from tuner_service.domain.trial import TrialOutcome, TrialStatus

TWO = Objective(metric="loss", further=(Objective(metric="speed", goal=Goal.MAXIMIZE),))


def test_every_objective_stands_in_order() -> None:
    assert [one.metric for one in TWO.every] == ["loss", "speed"]
    assert [one.metric for one in Objective(metric="loss").every] == ["loss"]
    outcome = TrialOutcome(number=1, status=TrialStatus.SUCCEEDED, parameters={}, value=1.0, further_values=(2.0,))
    assert outcome.values == (1.0, 2.0)


def test_losses_are_for_minimising_and_missing_where_something_is() -> None:
    assert losses(TWO, (1.0, 2.0)) == (1.0, -2.0)
    assert losses(TWO, (1.0, None)) is None
    assert losses(TWO, (math.nan, 1.0)) is None
    assert losses(TWO, (1.0,)) is None


@pytest.mark.parametrize(
    ("final", "status", "expected"),
    [
        (FinalFrom.REPORTED, TrialStatus.SUCCEEDED, 3.0),
        (FinalFrom.LAST, TrialStatus.SUCCEEDED, 2.0),
        (FinalFrom.REPORTED, TrialStatus.EARLY_STOPPED, 2.0),
    ],
)
def test_further_values_come_from_where_the_first_one_does(
    final: FinalFrom, status: TrialStatus, expected: float
) -> None:
    spec = a_spec(objective=TWO, trial={"final": final})
    trial = a_trial(status=status, value=1.0, final={"loss": 1.0, "speed": 3.0}, last_metrics={"speed": 2.0})
    assert further_values(trial, spec) == (expected,)


def test_the_last_further_value_may_be_a_final_one_and_may_be_missing() -> None:
    spec = a_spec(objective=TWO, trial={"final": FinalFrom.LAST})
    assert further_values(a_trial(value=1.0, final={"speed": 3.0}), spec) == (3.0,)
    assert further_values(a_trial(value=1.0), spec) == (None,)


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether losses ``one`` are nowhere worse than ``other`` and somewhere better."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_front_is_what_none_dominates(count: int) -> None:
    rng = random.Random(count)
    points = [tuple(float(rng.randrange(8)) for _ in range(count)) for _ in range(120)]
    found = {points[index] for index in front(points)}
    expected = {point for point in points if not any(dominates(other, point) for other in points)}
    assert found == expected
    assert len(front(points)) == len(expected)
    assert front([]) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_hypervolume_is_the_number_of_cells_that_are_dominated(count: int) -> None:
    rng = random.Random(count)
    for _ in range(20):
        points = [tuple(float(rng.randrange(5)) for _ in range(count)) for _ in range(6)]
        cells = itertools.product(range(5), repeat=count)
        expected = sum(any(all(p <= c for p, c in zip(point, cell, strict=True)) for point in points) for cell in cells)
        assert hypervolume(points, (5.0,) * count) == expected


def test_what_lies_beyond_the_reference_counts_for_nothing() -> None:
    assert hypervolume([(6.0, 0.0), (0.0, 5.0)], (5.0, 5.0)) == 0
    assert hypervolume([], (5.0, 5.0)) == 0
    assert hypervolume([(1.0, 1.0), (2.0, 1.0)], (3.0, 3.0)) == 4


@pytest.mark.parametrize("count", [3, 4, 6])
@given(data=st.data())
def test_the_front_of_many_objectives_is_what_nothing_dominates(data: st.DataObject, count: int) -> None:
    points = data.draw(st.lists(st.tuples(*[st.integers(0, 5).map(float)] * count), max_size=30))
    first = {point: index for index, point in reversed(list(enumerate(points)))}
    expected = [
        index
        for index, point in enumerate(points)
        if first[point] == index and not any(dominates(other, point) for other in points)
    ]
    assert front(points) == expected
