"""What tuners ask of ranges: places, portions, sizes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.domain.ranges import Choice, FloatRange, NormalRange, Option, Permutation, QuantizedRange, Subset
from tuner_service.domain.search_space import parse_search_space

QUANTIZED = QuantizedRange(low=0.5, high=10.0, q=2.0)


def test_every_value_of_a_quantized_range_has_a_place() -> None:
    values = [QUANTIZED.value_at(index) for index in range(int(QUANTIZED.size))]

    assert values == [0.5, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert [QUANTIZED.index_of(value) for value in values] == list(range(6))


@pytest.mark.parametrize(("value", "place"), [(-100.0, 0), (100.0, 5), (3.1, 2)])
def test_a_value_beside_the_range_has_the_nearest_place(value: float, place: int) -> None:
    assert QUANTIZED.index_of(value) == place


@given(st.floats(min_value=0.01, max_value=0.99))
@pytest.mark.parametrize("log", [False, True])
def test_a_portion_is_the_inverse_of_a_quantile(log: bool, portion: float) -> None:
    normal = NormalRange(mu=1.0, sigma=0.5, log=log)

    assert normal.portion(normal.quantile(portion)) == pytest.approx(portion)


def test_nothing_of_a_lognormal_distribution_lies_below_zero() -> None:
    assert NormalRange(mu=0.0, sigma=1.0, log=True).portion(0.0) == 0.0


@pytest.mark.parametrize(
    ("space", "size"),
    [
        ({"a": {"_type": "choice", "_value": [1, 2, 3]}, "b": {"type": "int", "low": 1, "high": 4}}, 12),
        (
            {
                "a": {
                    "_type": "choice",
                    "_value": [{"_name": "x"}, {"_name": "y", "k": {"_type": "randint", "_value": [0, 5]}}],
                }
            },
            6,
        ),
        ({"a": {"_type": "normal", "_value": [0, 1]}, "b": {"type": "int", "low": 1, "high": 4}}, math.inf),
        ({"a": {"_type": "choice", "_value": [{"_name": "y", "k": {"_type": "uniform", "_value": [0, 5]}}]}}, math.inf),
    ],
)
def test_a_space_knows_how_many_sets_of_parameters_there_are(space: dict[str, object], size: float) -> None:
    assert parse_search_space(space).size == size


@pytest.mark.parametrize(
    ("options", "conditional"),
    [([1, 2], False), ([{"_name": "x"}, {"_name": "y", "k": {"_type": "randint", "_value": [0, 5]}}], True)],
)
def test_a_space_knows_whether_parameters_depend_on_others(options: list[object], conditional: bool) -> None:
    assert parse_search_space({"a": {"_type": "choice", "_value": options}}).is_conditional is conditional


def test_every_point_of_the_grid_of_a_nested_space_is_there_once() -> None:
    nested = {
        "layer": {
            "_type": "choice",
            "_value": [
                {"_name": "none"},
                {"_name": "conv", "kernel": {"_type": "choice", "_value": [3, 5]}},
                {"_name": "dense", "width": {"type": "int", "low": 1, "high": 3}},
            ],
        },
        "batch": {"_type": "choice", "_value": [16, 32]},
    }
    space = parse_search_space(nested)
    points = [space.grid_point(index, 4) for index in range(space.grid_size(4))]

    assert len(points) == 12
    assert len({repr(point) for point in points}) == 12
    assert all(space.contains(point) for point in points)
    assert points[0] == {"layer": {"_name": "none"}, "batch": 16}
    assert points[-1] == {"layer": {"_name": "dense", "width": 3}, "batch": 32}


def test_a_model_sees_an_order_as_numbers_between_0_and_1_and_a_subset_as_one_switch_each() -> None:
    options = tuple(Option(value=value) for value in "abc")
    order, subset = Permutation(options=options), Subset(options=options, least=1, most=2)

    assert order.parts == (FloatRange(low=0.0, high=1.0),) * 3
    assert [part.contains(key) for part, key in zip(order.parts, order.to_parts((2, 0, 1)), strict=True)] == [True] * 3
    assert order.from_parts(order.to_parts((2, 0, 1))) == (2, 0, 1)
    assert [[option.value for option in part.options] for part in subset.parts if isinstance(part, Choice)] == [
        *([False, True] for _ in options)
    ]
    assert subset.from_parts(subset.to_parts((0, 2))) == (0, 2)
