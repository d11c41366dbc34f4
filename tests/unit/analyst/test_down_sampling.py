"""Fewer points of a curve, which show the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.analyst.down_sampling import LEAST_POINTS, down_sampled
from tuner_service.analyst.evenly import evenly

VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=16), max_size=200)


@given(VALUES, st.integers(LEAST_POINTS, 60))
def test_ends_and_extremes_stay_within_the_bound(values: list[float], points: int) -> None:
    places = down_sampled(values, points)
    assert len(places) <= points or len(values) <= points
    assert places == sorted(set(places))
    if not values:
        return
    assert {places[0], places[-1]} == {0, len(values) - 1}
    finite = [value for value in values if math.isfinite(value)]
    kept = [values[place] for place in places if math.isfinite(values[place])]
    if finite:
        assert (min(kept), max(kept)) == (min(finite), max(finite))


@given(VALUES, st.integers(LEAST_POINTS, 60))
def test_what_was_thinned_out_once_may_be_thinned_out_again(values: list[float], points: int) -> None:
    once = [values[place] for place in down_sampled(values, 2 * points)]
    twice = [once[place] for place in down_sampled(once, points)]
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        kept = [value for value in twice if math.isfinite(value)]
        assert (min(kept), max(kept)) == (min(finite), max(finite))


def test_a_peak_of_one_point_and_a_gap_stay() -> None:
    values = [0.0] * 10_000
    values[5_432] = 7.0
    values[7_000:7_100] = [math.nan] * 100
    places = down_sampled(values, 40)
    assert 5_432 in places
    assert {7_000, 7_099} <= set(places)


@pytest.mark.parametrize(("count", "limit", "kept"), [(3, 5, [0, 1, 2]), (5, 3, [0, 2, 4]), (5, 1, [4]), (5, 0, [])])
def test_evenly_has_the_ends(count: int, limit: int, kept: list[int]) -> None:
    assert evenly(range(count), limit) == kept
