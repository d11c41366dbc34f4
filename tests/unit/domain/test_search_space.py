from __future__ import annotations

import contextlib
import json
import math
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.domain.errors import InputError
from tuner_service.domain.search_space import SearchSpace, parameters_key, parse_search_space
from tuner_service.domain.space_parsing import FAULT_LIMIT, NESTING_LIMIT, OPTION_LIMIT, PARAMETER_LIMIT

NESTED = {
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "none"},
            {"_name": "conv", "kernel": {"_type": "choice", "_value": [3, 5]}, "rate": {"type": "bool"}},
        ],
    },
    "lr": {"_type": "choice", "_value": [0.1, 0.01]},
}
EVERY_KIND: dict[str, Any] = {
    "choice": {"_type": "choice", "_value": ["a", 1, 2.5, None, True, [1, 2]]},
    "randint": {"_type": "randint", "_value": [3, 7]},
    "uniform": {"_type": "uniform", "_value": [-1, 1]},
    "quniform": {"_type": "quniform", "_value": [0.4, 3.7, 0.5]},
    "loguniform": {"_type": "loguniform", "_value": [1e-5, 1]},
    "qloguniform": {"_type": "qloguniform", "_value": [1, 100, 8]},
    "normal": {"_type": "normal", "_value": [0, 1]},
    "qnormal": {"_type": "qnormal", "_value": [0, 3, 0.5]},
    "lognormal": {"_type": "lognormal", "_value": [0, 1]},
    "qlognormal": {"_type": "qlognormal", "_value": [0, 1, 0.25]},
    "float": {"type": "float", "low": 0, "high": 1, "step": 0.1},
    "log": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
    "int": {"type": "int", "low": 10, "high": 20, "step": 5},
    "logint": {"type": "int", "low": 1, "high": 1000, "log": True},
    "categorical": {"type": "categorical", "choices": ["x", "y"]},
    "ordinal": {"type": "ordinal", "choices": ["small", "large"]},
    "bool": {"type": "bool"},
    "const": {"type": "const", "value": 42},
    **NESTED,
}


def draws(space: SearchSpace, count: int = 300) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


def faults_of(data: Any) -> dict[str, str]:
    with pytest.raises(InputError) as raised:
        parse_search_space(data)
    return {fault.pointer: fault.message for fault in raised.value.faults}


def only(spec: dict[str, Any]) -> SearchSpace:
    return parse_search_space({"x": spec})


def values_of(spec: dict[str, Any], count: int = 2000) -> list[Any]:
    return [parameters["x"] for parameters in draws(only(spec), count)]


def test_every_kind_samples_inside_itself_and_in_file_order() -> None:
    space = parse_search_space(EVERY_KIND)
    for parameters in draws(space):
        assert list(parameters) == list(EVERY_KIND)
        assert space.contains(parameters)


def test_what_was_sampled_is_still_inside_after_a_journey_through_json() -> None:
    space = parse_search_space(EVERY_KIND)
    for parameters in draws(space):
        returned = json.loads(json.dumps(parameters))
        assert space.contains(returned)
        assert parameters_key(returned) == parameters_key(parameters)


def test_building_from_the_flat_form_gives_the_same_parameters() -> None:
    space = parse_search_space(EVERY_KIND)
    for parameters in draws(space):
        flat = space.flatten(parameters)
        assert flat is not None
        assert space.build(lambda path, _, flat=flat: flat[path]) == parameters


def test_the_upper_bound_of_randint_is_excluded() -> None:
    assert set(values_of({"_type": "randint", "_value": [3, 7]})) == {3, 4, 5, 6}


def test_quantised_values_are_rounded_and_then_clipped_as_nni_documents() -> None:
    assert set(values_of({"_type": "quniform", "_value": [0.4, 3.7, 1]})) == {0.4, 1.0, 2.0, 3.0, 3.7}
    assert set(values_of({"_type": "qloguniform", "_value": [1, 20, 8]})) == {1.0, 8.0, 16.0}


def test_the_ends_of_a_quantised_range_get_half_a_step_of_it() -> None:
    drawn = values_of({"_type": "quniform", "_value": [0, 4, 1]}, 8000)
    assert 0.10 < drawn.count(0.0) / 8000 < 0.15
    assert 0.22 < drawn.count(2.0) / 8000 < 0.28


def test_quantised_normals_are_multiples_of_q_and_negative_zero_does_not_occur() -> None:
    drawn = values_of({"_type": "qnormal", "_value": [0, 1, 0.5]})
    assert all((value / 0.5).is_integer() for value in drawn)
    assert not any(value == 0 and math.copysign(1, value) < 0 for value in drawn)


def test_a_logarithmic_range_has_as_many_draws_in_each_decade() -> None:
    drawn = values_of({"_type": "loguniform", "_value": [1e-4, 1]}, 4000)
    assert all(1e-4 <= value <= 1 for value in drawn)
    assert 0.22 < sum(value < 1e-3 for value in drawn) / 4000 < 0.28


def test_the_size_is_counted_and_infinite_with_a_continuous_parameter() -> None:
    assert parse_search_space(NESTED).size == (1 + 2 * 2) * 2
    assert only({"_type": "quniform", "_value": [0.4, 3.7, 1]}).size == 5
    assert only({"type": "float", "low": 0, "high": 1, "step": 0.1}).size == 11
    assert only({"type": "int", "low": 1, "high": 10, "step": 4}).size == 3
    assert only({"_type": "uniform", "_value": [0, 1]}).size == math.inf
    many = {f"x{i}": {"type": "int", "low": 0, "high": 2**53} for i in range(100)}
    assert parse_search_space(many | {"y": {"_type": "uniform", "_value": [0, 1]}}).size == math.inf


def test_a_finite_grid_holds_every_point_once_with_the_last_parameter_fastest() -> None:
    space = parse_search_space(NESTED)
    points = [space.grid_point(index, 1) for index in range(space.grid_size(1))]
    assert points[:3] == [
        {"layer": {"_name": "none"}, "lr": 0.1},
        {"layer": {"_name": "none"}, "lr": 0.01},
        {"layer": {"_name": "conv", "kernel": 3, "rate": False}, "lr": 0.1},
    ]
    assert len({parameters_key(point) for point in points}) == space.size
    assert all(map(space.contains, points))


def test_a_grid_of_many_options_is_gone_through_quickly() -> None:
    space = parse_search_space({"c": {"type": "categorical", "choices": list(range(50_000))}, "b": {"type": "bool"}})
    begun = time.process_time()
    found = [space.grid_point(index, 1) for index in range(90_000, 91_000)]
    assert time.process_time() - begun < 1
    assert found[:2] == [{"c": 45_000, "b": False}, {"c": 45_000, "b": True}]
    assert len(found) == 1_000


def test_a_grid_divides_continuous_parameters_ends_included() -> None:
    space = only({"_type": "loguniform", "_value": [0.01, 1]})
    assert [space.grid_point(i, 3)["x"] for i in range(3)] == [0.01, pytest.approx(0.1), 1.0]
    normal = only({"_type": "normal", "_value": [10, 2]})
    assert [normal.grid_point(i, 3)["x"] for i in range(3)] == pytest.approx([8.065, 10, 11.935], abs=1e-3)


def test_a_grid_point_of_every_kind_lies_inside() -> None:
    for name, spec in EVERY_KIND.items():
        space = parse_search_space({name: spec})
        for index in range(min(space.grid_size(7), 50)):
            assert space.contains(space.grid_point(index, 7)), name


def test_equal_parameters_have_one_key_whatever_their_order_and_number_type() -> None:
    assert parameters_key({"a": 1, "b": [0.5, -0.0]}) == parameters_key({"b": [0.5, 0], "a": 1.0})
    assert parameters_key({"a": 1}) != parameters_key({"a": True})
    assert parameters_key({"a": 1}) != parameters_key({"a": "1"})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"lr": 0.1},
        {"layer": {"_name": "none"}, "lr": 0.5},
        {"layer": {"_name": "none"}, "lr": 0.1, "more": 1},
        {"layer": {"_name": "none", "kernel": 3}, "lr": 0.1},
        {"layer": {"_name": "conv", "kernel": 3}, "lr": 0.1},
        {"layer": "none", "lr": 0.1},
        {"layer": {"_name": ["none"]}, "lr": 0.1},
        {"layer": {"_name": "none"}, "lr": math.nan},
        [],
        None,
    ],
)
def test_parameters_outside_the_space_are_told(parameters: Any) -> None:
    assert not parse_search_space(NESTED).contains(parameters)


@pytest.mark.parametrize("value", [3.5, "4", True, None, 2, 7, math.nan, 10**400])
def test_an_integer_parameter_takes_integers_in_its_range_only(value: Any) -> None:
    assert not only({"_type": "randint", "_value": [3, 7]}).contains({"x": value})


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        (3, "/x"),
        ({}, "/x"),
        ({"_type": "uniform", "type": "float"}, "/x"),
        ({"_type": "gamma", "_value": [1]}, "/x/_type"),
        ({"_type": ["uniform"], "_value": [1]}, "/x/_type"),
        ({"_type": "uniform", "_value": [0]}, "/x/_value"),
        ({"_type": "uniform", "_value": [0, math.inf]}, "/x/_value"),
        ({"_type": "uniform", "_value": [0, 10**400]}, "/x/_value"),
        ({"_type": "uniform", "_value": [1, 0]}, "/x/_value"),
        ({"_type": "uniform", "_value": [-1.7e308, 1.7e308]}, "/x/_value"),
        ({"_type": "uniform", "_value": [0, 1], "step": 1}, "/x/step"),
        ({"_type": "uniform", "_value": [0, True]}, "/x/_value"),
        ({"_type": "loguniform", "_value": [0, 1]}, "/x/_value"),
        ({"_type": "quniform", "_value": [0, 1, 0]}, "/x/_value/2"),
        ({"_type": "quniform", "_value": [0, 1, 1e-300]}, "/x/_value/2"),
        ({"_type": "randint", "_value": [0.5, 2]}, "/x/_value"),
        ({"_type": "randint", "_value": [2, 2]}, "/x/_value"),
        ({"_type": "normal", "_value": [0, 0]}, "/x/_value/1"),
        ({"_type": "lognormal", "_value": [0, 1000]}, "/x/_value"),
        ({"_type": "qlognormal", "_value": [0, 5, 1]}, "/x/_value/2"),
        ({"type": "float", "low": 1, "high": 9, "log": True, "step": 1}, "/x/step"),
        ({"type": "int", "low": 1, "high": 9, "log": True, "step": 2}, "/x/step"),
        ({"type": "float", "low": -(2**52), "high": 2**52, "step": 1}, "/x/step"),
        ({"_type": "choice", "_value": []}, "/x/_value"),
        ({"_type": "choice"}, "/x/_value"),
        ({"_type": "choice", "_value": [1, 1.0]}, "/x/_value/1"),
        ({"_type": "choice", "_value": [math.nan]}, "/x/_value/0"),
        ({"_type": "choice", "_value": [{"kernel": {"type": "bool"}}]}, "/x/_value/0"),
        ({"_type": "choice", "_value": [{"kernel": math.inf}]}, "/x/_value/0/kernel"),
        ({"_type": "choice", "_value": [{"_name": "a", "k": 3}]}, "/x/_value/0/k"),
        ({"type": "float", "low": 0, "high": 1, "when": {}}, "/x/when"),
        ({"type": "float", "low": 0}, "/x"),
        ({"type": "float", "low": "0", "high": 1}, "/x/low"),
        ({"type": "float", "low": 1, "high": 2, "log": 1}, "/x/log"),
        ({"type": "float", "low": 1, "high": 2, "log": True, "step": 0.5}, "/x/step"),
        ({"type": "float", "low": 0, "high": 1, "step": 0}, "/x/step"),
        ({"type": "int", "low": 0.5, "high": 1}, "/x/low"),
        ({"type": "int", "low": 0, "high": 5, "log": True}, "/x"),
        ({"type": "ordinal", "choices": [{"_name": "a"}]}, "/x/choices/0"),
        ({"type": "const", "value": math.inf}, "/x/value"),
        ({"type": "real", "low": 0}, "/x/type"),
    ],
)
def test_a_fault_is_named_with_its_pointer(spec: Any, pointer: str) -> None:
    assert pointer in faults_of({"x": spec})


def test_every_fault_is_found_not_only_the_first() -> None:
    found = faults_of(
        {
            "a/b": {"_type": "uniform", "_value": [1, 0]},
            "c": {"type": "int", "low": 1, "high": 2, "sizes": 3},
            "d": {"_type": "choice", "_value": [{"_name": "n", "e": {"type": "float"}}]},
            "_name": {"type": "bool"},
        }
    )
    assert {"/a~1b/_value", "/c/sizes", "/d/_value/0/e", "/_name"} <= set(found)
    assert "low, high, log, step" in found["/c/sizes"]


def test_spaces_beyond_a_limit_are_refused_naming_it() -> None:
    many = {f"p{i}": {"type": "bool"} for i in range(PARAMETER_LIMIT + 1)}
    assert str(PARAMETER_LIMIT) in faults_of(many)[""]
    wide = {"x": {"type": "categorical", "choices": list(range(OPTION_LIMIT + 1))}}
    assert str(OPTION_LIMIT) in faults_of(wide)["/x/choices"]
    deep: dict[str, Any] = {"x": {"type": "bool"}}
    for _ in range(NESTING_LIMIT + 1):
        deep = {"x": {"_type": "choice", "_value": [{"_name": "n", **deep}]}}
    assert any(str(NESTING_LIMIT) in message for message in faults_of(deep).values())


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_what_is_no_space_at_all_is_refused(data: Any) -> None:
    assert faults_of(data)


def test_the_empty_space_has_one_point() -> None:
    space = parse_search_space({})

    assert (space.size, space.sample(random.Random(0)), space.dimension) == (1, {}, 0)
    assert space.contains({})
    assert not space.contains({"lr": 1})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
spec_like = st.fixed_dictionaries(
    {},
    optional={
        "_type": st.sampled_from(["choice", "uniform", "randint", "qlognormal", "x"]),
        "type": st.sampled_from(["float", "int", "bool", "const", "x"]),
        "_value": json_values,
        "low": json_values,
        "high": json_values,
        "step": json_values,
    },
)


@given(st.dictionaries(st.text(max_size=3), spec_like | json_values, max_size=3))
def test_any_json_either_is_a_space_that_samples_inside_itself_or_has_faults(data: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        space = parse_search_space(data)
        assert space.contains(space.sample(random.Random(0)))


def test_a_range_of_one_value_is_that_value() -> None:
    space = parse_search_space({"x": {"_type": "uniform", "_value": [2, 2]}, "y": {"type": "int", "low": 3, "high": 3}})
    assert space.size == space.grid_size(10) == 1
    assert space.sample(random.Random(0)) == {"x": 2.0, "y": 3}


@pytest.mark.parametrize(
    ("spec", "outside"),
    [
        ({"_type": "uniform", "_value": [0, 1]}, [1.5, -0.1, "0.5", True]),
        ({"type": "float", "low": 0, "high": 1, "step": 0.1}, [0.35]),
        ({"type": "float", "low": 0, "high": 0.5, "step": 0.3}, [0.5]),  # 0 and 0.3 alone
        ({"_type": "quniform", "_value": [0, 1, 0.25]}, [0.3]),
        ({"_type": "lognormal", "_value": [0, 1]}, [0, -1]),
        ({"_type": "qlognormal", "_value": [0, 1, 0.5]}, [-0.5, 0.3]),
        ({"_type": "normal", "_value": [0, 1]}, [math.inf]),
    ],
)
def test_numbers_outside_a_range_or_between_its_steps_are_told(spec: dict[str, Any], outside: list[Any]) -> None:
    assert not any(only(spec).contains({"x": value}) for value in outside)


def test_a_step_typed_by_hand_belongs_to_its_range() -> None:
    assert only({"type": "float", "low": 0, "high": 1, "step": 0.1}).contains({"x": 0.3})
    assert only({"_type": "qlognormal", "_value": [0, 1, 0.5]}).contains({"x": 0})


def test_a_quantum_that_is_too_small_for_a_normal_is_refused() -> None:
    assert "/x/_value/2" in faults_of({"x": {"_type": "qnormal", "_value": [0, 1, 1e-300]}})


def test_a_space_of_faults_names_a_bounded_number_of_them() -> None:
    with pytest.raises(InputError) as raised:
        parse_search_space({f"p{i}": 3 for i in range(500)})
    assert len(raised.value.faults) == FAULT_LIMIT


def test_ranges_can_be_put_into_sets_although_options_may_be_lists() -> None:
    options = parse_search_space(NESTED).parameters[0].range
    assert len({options, options}) == 1


@pytest.mark.parametrize(
    "spec",
    [
        {"_type": "lognormal", "_value": [0, 70]},
        {"_type": "qlognormal", "_value": [0, 3.6, 1]},
        {"type": "float", "low": 2**53, "high": 2**53 + 100, "step": 4},
        {"type": "int", "low": 1, "high": 1000, "log": True, "step": 1},
    ],
)
def test_a_range_that_just_fits_is_taken(spec: dict[str, Any]) -> None:
    space = only(spec)

    assert space.contains(space.sample(random.Random(1)))


def test_options_that_are_no_values_are_told_once_each_also_where_they_are_alike() -> None:
    with pytest.raises(InputError) as raised:
        parse_search_space({"x": {"_type": "choice", "_value": [[{"a": 1}], [{"a": 1}], 3]}})

    assert [fault.pointer for fault in raised.value.faults] == ["/x/_value/0/0", "/x/_value/1/0"]
