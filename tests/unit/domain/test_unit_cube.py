from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.domain.search_space import SearchSpace, parse_search_space

RANGES: dict[str, Any] = {
    "choice": {"_type": "choice", "_value": ["a", 1, 2.5, None, True, [1, 2]]},
    "randint": {"_type": "randint", "_value": [3, 7]},
    "uniform": {"_type": "uniform", "_value": [-1, 1]},
    "narrow": {"_type": "uniform", "_value": [1e9, 1e9 + 1]},
    "quniform": {"_type": "quniform", "_value": [0.4, 3.7, 0.5]},
    "loguniform": {"_type": "loguniform", "_value": [1e-12, 1e6]},
    "qloguniform": {"_type": "qloguniform", "_value": [1, 100, 8]},
    "one_quantum": {"_type": "quniform", "_value": [2, 2, 1]},
    "normal": {"_type": "normal", "_value": [0, 1]},
    "far_normal": {"_type": "normal", "_value": [1e6, 1e-3]},
    "qnormal": {"_type": "qnormal", "_value": [0, 3, 0.5]},
    "lognormal": {"_type": "lognormal", "_value": [0, 1]},
    "qlognormal": {"_type": "qlognormal", "_value": [0, 1, 0.25]},
    "step": {"type": "float", "low": 0, "high": 1, "step": 0.1},
    "log": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "int": {"type": "int", "low": 10, "high": 20, "step": 5},
    "log_int": {"type": "int", "low": 1, "high": 1000, "log": True},
    "ordinal": {"type": "ordinal", "choices": ["small", "large"]},
    "const": {"type": "const", "value": 42},
    "point": {"type": "float", "low": 2, "high": 2},
    "permutation": {"type": "permutation", "choices": ["a", "b", "c", "d"]},
    "subset": {"type": "subset", "choices": [1, 2, 3, 4], "least": 1, "most": 3},
    "nested": {
        "_type": "choice",
        "_value": ["plain", {"_name": "deep", "by": {"_type": "uniform", "_value": [0, 1]}, "flag": {"type": "bool"}}],
    },
    "when": {"type": "float", "low": 0, "high": 1, "when": {"ordinal": "small"}},
}


def space_of(*names: str) -> SearchSpace:
    return parse_search_space({name: RANGES[name] for name in names or RANGES})


@pytest.mark.parametrize("name", [name for name in RANGES if name != "when"])
def test_what_was_drawn_comes_back_exactly(name: str) -> None:
    space, rng = space_of(name), random.Random(1)
    for _ in range(300):
        parameters = space.sample(rng)
        point = space.encode(parameters)
        assert point is not None
        assert space.decode(point) == parameters


@given(seed=st.integers(0, 10_000))
def test_every_point_of_the_cube_stands_for_parameters_that_come_back(seed: int) -> None:
    space, rng = space_of(), random.Random(seed)
    parameters = space.decode(tuple(rng.random() for _ in range(space.dimension)))
    assert space.contains(parameters)
    point = space.encode(parameters)
    assert point is not None
    assert len(point) == space.dimension
    assert all(0 <= u <= 1 for u in point)
    assert space.decode(point) == parameters


@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_the_corners_stand_for_the_ends(corner: float) -> None:
    space = space_of()
    parameters = space.decode((corner,) * space.dimension)
    assert space.contains(parameters)
    assert parameters["uniform"] == (1.0 if corner else -1.0)
    assert parameters["log_int"] == (1000 if corner else 1)


@pytest.mark.parametrize("name", ["choice", "randint", "quniform", "step", "int", "log_int", "ordinal", "permutation"])
def test_every_value_of_a_discrete_range_comes_back(name: str) -> None:
    space = space_of(name)
    for index in range(space.grid_size(1)):
        parameters = space.grid_point(index, 1)
        assert parameters is not None
        point = space.encode(parameters)
        assert point is not None
        assert space.decode(point) == parameters


@given(st.floats(-1, 1))
def test_a_typed_number_comes_back_but_for_the_last_digit_of_the_range(x: float) -> None:
    space = space_of("uniform")
    point = space.encode({"uniform": x})
    assert point is not None
    assert abs(space.decode(point)["uniform"] - x) <= 2.0**-52


def test_cells_are_as_wide_as_their_values_are_likely() -> None:
    space, rng = space_of("qloguniform"), random.Random(0)
    drawn = [space.sample(rng)["qloguniform"] for _ in range(4_000)]
    spread = [space.decode((i / 4_000,))["qloguniform"] for i in range(4_000)]
    for value in set(drawn):
        assert abs(drawn.count(value) - spread.count(value)) < 200


def test_what_is_not_there_stands_in_the_middle_and_what_lies_outside_nowhere() -> None:
    space = space_of("nested", "ordinal", "when")
    assert space.encode({"nested": "plain", "ordinal": "large"}) == (0.25, 0.5, 0.5, 0.75, 0.5)
    assert space.encode({"nested": "plain"}) is None
    assert space.columns_of(["nested/deep/by"]) == {1}


def test_a_subset_of_too_many_or_too_few_is_mended() -> None:
    space = space_of("subset")
    assert space.decode((0.9, 0.8, 0.7, 0.6))["subset"] == [1, 2, 3]
    assert space.decode((0.1, 0.2, 0.4, 0.3))["subset"] == [3]
