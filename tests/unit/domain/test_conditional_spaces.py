"""``when``, constraints, permutations and subsets."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tuner_service.domain import counting, search_space
from tuner_service.domain.errors import InputError, TemporarilyUnableError
from tuner_service.domain.ranges import Permutation, Subset
from tuner_service.domain.search_space import SearchSpace, parameters_key, parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.space_parsing import CONDITION_LIMIT, CONSTRAINT_LIMIT, ITEM_LIMIT

OPTIMIZER = {"type": "categorical", "choices": ["sgd", "adam", "rms"]}
UNIT = {"type": "float", "low": 0, "high": 1}
SMALL = {"type": "int", "low": 0, "high": 3}
NESTED = {
    "depth": SMALL,
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "none"},
            {
                "_name": "conv",
                "kernel": {"type": "int", "low": 1, "high": 2},
                "pad": {**SMALL, "when": {"depth": [1, 2]}},
            },
        ],
    },
    "rate": {"type": "bool", "when": {"layer": "conv"}},
}


def impossible() -> SearchSpace:
    """Which ``parse_search_space`` would have refused."""
    nine = parse_search_space({"a": {"type": "int", "low": 9, "high": 9}, "constraints": ["a > 8"]})
    return replace(parse_search_space({"a": SMALL}), constraints=nine.constraints)


def draws(space: SearchSpace, count: int = 400) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [space.sample(rng) for _ in range(count)]


def faults_of(data: Any) -> dict[str, str]:
    with pytest.raises(InputError) as raised:
        parse_search_space(data)
    return {fault.pointer: fault.message for fault in raised.value.faults}


# ── conditions ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("when", "there"),
    [
        ({"optimizer": "sgd"}, {"sgd"}),
        ({"optimizer": ["sgd", "rms"]}, {"sgd", "rms"}),
        ("optimizer != 'sgd'", {"adam", "rms"}),
        ({"optimizer": "other"}, set()),
    ],
)
def test_a_parameter_is_there_where_its_condition_holds(when: Any, there: set[str]) -> None:
    space = parse_search_space({"momentum": {**UNIT, "when": when}, "optimizer": OPTIMIZER})
    assert {p["optimizer"] for p in draws(space) if "momentum" in p} == there
    assert space.is_conditional
    assert all(space.contains(json.loads(json.dumps(parameters))) for parameters in draws(space))


def test_what_should_not_be_there_or_is_missing_lies_outside() -> None:
    space = parse_search_space({"optimizer": OPTIMIZER, "momentum": {**UNIT, "when": {"optimizer": "sgd"}}})
    assert space.contains({"optimizer": "sgd", "momentum": 0.5})
    assert not space.contains({"optimizer": "sgd"})
    assert not space.contains({"optimizer": "adam", "momentum": 0.5})


def test_a_condition_on_what_is_not_there_does_not_hold() -> None:
    space = parse_search_space(
        {
            "a": {"type": "bool"},
            "b": {"type": "bool", "when": {"a": True}},
            "c": {"type": "bool", "when": {"b": True}},
            "d": {"type": "bool", "when": "not b"},
        }
    )
    seen = {tuple(parameters) for parameters in draws(space)}
    assert seen == {("a",), ("a", "b", "c"), ("a", "b", "d")}


def test_a_nested_parameter_may_depend_on_the_space_around_it_and_a_later_one_on_its_name() -> None:
    space = parse_search_space(NESTED)
    for parameters in draws(space):
        is_conv = parameters["layer"]["_name"] == "conv"
        assert ("rate" in parameters) == is_conv
        assert ("pad" in parameters["layer"]) == (is_conv and parameters["depth"] in {1, 2})
        assert space.contains(parameters)
    assert space.size == 4 * 1 + 2 * (2 * 2) + 2 * (2 * 4 * 2)


def test_the_grid_of_a_conditional_space_has_each_point_once() -> None:
    space = parse_search_space(NESTED)
    points = [space.grid_point(index, 3) for index in range(space.grid_size(3))]
    found = [point for point in points if point is not None]
    assert len({parameters_key(point) for point in found}) == len(found) == space.size
    assert all(space.contains(point) for point in found)


CONSTRAINED = {
    "kind": {"_type": "choice", "_value": ["none", {"_name": "some", "of": SMALL, "by": {**SMALL, "when": "of > 1"}}]},
    "a": {**SMALL, "when": {"kind": "some"}},
    "b": SMALL,
    "c": {**SMALL, "when": "b > 1"},
    "constraints": ["a < 2 and c < 3", "kind == 'none' or kind.of < 3", "b > 0"],
}


@pytest.mark.parametrize("described", [NESTED, CONSTRAINED, {"a": SMALL, "b": SMALL, "constraints": ["a * b <= 4"]}])
def test_the_next_point_of_a_grid_is_the_first_that_stands_there(described: dict[str, Any]) -> None:
    space = parse_search_space(described)
    size = space.grid_size(3)
    standing = [(index, point) for index in range(size) if (point := space.grid_point(index, 3)) is not None]
    for index in range(size):
        expected = next((found for found in standing if found[0] >= index), None)
        assert space.next_grid_point(index, 3) == expected
    assert len(standing) < size
    assert all(space.contains(point) for _, point in standing)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"a": {"type": "bool"}}, {"when": {"a": True}}),
        ({"a": {"_type": "choice", "_value": [{"_name": "no", "of": UNIT}, "yes"]}}, {"when": "a == 'yes'"}),
        ({"a": {"type": "int", "low": 0, "high": 1}, "constraints": ["a > 0"]}, {}),
    ],
)
def test_places_that_are_empty_together_are_passed_over_at_once(
    monkeypatch: pytest.MonkeyPatch, first: dict[str, Any], last: dict[str, Any]
) -> None:
    digits = {f"x{place}": {"type": "int", "low": 0, "high": 9, **last} for place in range(8)}
    space = parse_search_space(first | digits)
    looked: list[int] = []
    look = counting.Grid.look

    def looks(grid: counting.Grid, index: int, *args: Any, **kwargs: Any) -> Any:
        looked.append(index)
        return look(grid, index, *args, **kwargs)

    monkeypatch.setattr(counting.Grid, "look", looks)

    found = space.next_grid_point(1, 1)

    assert found is not None
    assert found[0] >= 10**8
    assert len(looked) < 30  # one a parameter, and as many inside


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"missing": 1}, "no parameter of this space"),
        ("missing > 1", "no parameter of this space"),
        ({}, "must be an expression"),
        (3, "must be an expression"),
        ({1: 2}, "must be an expression"),
        ({"optimizer": []}, "needs a value"),
        ({"optimizer": {"_name": "x"}}, "needs a value"),
        ("optimizer ==", "no expression"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused_at_its_place(when: Any, why: str) -> None:
    assert why in faults_of({"optimizer": OPTIMIZER, "momentum": {**UNIT, "when": when}})["/momentum/when"]


def test_conditions_that_go_in_a_circle_are_refused_naming_them() -> None:
    faults = faults_of({"x": UNIT, "a": {**UNIT, "when": "b > 0"}, "b": {**UNIT, "when": "a > 0"}})
    assert faults == {"/a": "conditions go in a circle: a, b"}
    inside = {"_type": "choice", "_value": [{"_name": "one", "deep": {**UNIT, "when": {"c": "one"}}}]}
    assert "/c" in faults_of({"c": inside})


def test_nni_ranges_take_conditions_as_well() -> None:
    space = parse_search_space(
        {"a": {"type": "bool"}, "b": {"_type": "uniform", "_value": [0, 1], "when": {"a": True}}}
    )
    assert {len(parameters) for parameters in draws(space)} == {1, 2}


# ── constraints ─────────────────────────────────────────────────────────────────────────────────
def test_draws_keep_the_constraints_and_what_breaks_one_lies_outside() -> None:
    space = parse_search_space({"a": SMALL, "b": SMALL, "constraints": ["a * b <= 4", "a != b"]})
    assert all(p["a"] * p["b"] <= 4 and p["a"] != p["b"] for p in draws(space))
    assert not space.contains({"a": 3, "b": 3})
    assert space.size == len({parameters_key(p) for p in draws(space)}) == 10
    assert sum(space.grid_point(index, 1) is not None for index in range(16)) == 10
    assert not space.is_conditional


def test_draws_under_a_constraint_are_uniform() -> None:
    space = parse_search_space({"a": SMALL, "b": SMALL, "constraints": ["a < b"]})
    counts = Counter(parameters_key(parameters) for parameters in draws(space, 6_000))
    assert len(counts) == 6
    assert all(850 < count < 1_150 for count in counts.values())


def test_a_constraint_on_what_is_not_there_holds() -> None:
    space = parse_search_space({"a": {"type": "bool"}, "b": {**SMALL, "when": {"a": True}}, "constraints": ["b > 1"]})
    assert {parameters.get("b") for parameters in draws(space)} == {None, 2, 3}


def test_a_constrained_space_of_many_points_has_a_bound_for_its_size() -> None:
    big = {"type": "int", "low": 1, "high": 200}
    assert parse_search_space({"a": big, "b": big, "constraints": ["a < b"]}).size == 40_000
    assert parse_search_space({"a": UNIT, "constraints": ["a < 1"]}).size == math.inf


def test_a_space_that_was_accepted_is_drawn_from_however_long_it_takes() -> None:
    batch, accumulate = {"type": "int", "low": 16, "high": 256}, {"type": "int", "low": 1, "high": 64}
    space = parse_search_space({"batch": batch, "a": accumulate, "constraints": ["batch * a == 4096"]})
    parameters = space.sample(suggestion_generator(1, 21))  # whose first 10,000 draws keep nothing
    assert parameters["batch"] * parameters["a"] == 4096


def test_a_draw_that_finds_nothing_is_no_reason_to_end_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_space, "SAMPLE_LIMIT", 10)
    with pytest.raises(TemporarilyUnableError, match=r"none of 10 .* constraints"):
        impossible().sample(random.Random(0))


def test_constraints_that_nothing_keeps_are_refused() -> None:
    assert "none of" in faults_of({"a": SMALL, "constraints": ["a > 5"]})["/constraints"]


def test_faults_of_constraints_stand_at_their_places() -> None:
    faults = faults_of({"a": SMALL, "constraints": ["a <", "b > 1", 3]})
    assert set(faults) == {"/constraints/0", "/constraints/1", "/constraints/2"}
    assert "'b'" in faults["/constraints/1"]
    assert "/constraints" in faults_of({"a": SMALL, "constraints": ["a > 0"] * (CONSTRAINT_LIMIT + 1)})
    half = {"a": list(range(CONDITION_LIMIT // 2))}
    space = {"a": SMALL, "b": SMALL | {"when": half}, "c": SMALL | {"when": half}}
    parse_search_space(space)
    assert str(CONDITION_LIMIT) in faults_of(space | {"d": SMALL | {"when": "a > 0"}})["/d/when"]


def test_a_parameter_may_be_called_constraints() -> None:
    assert set(draws(parse_search_space({"constraints": SMALL}))[0]) == {"constraints"}


# ── permutations, subsets ───────────────────────────────────────────────────────────────────────
def test_a_permutation_is_any_order_of_all_options() -> None:
    space = parse_search_space({"p": {"type": "permutation", "choices": ["a", "b", 3]}})
    counts = Counter(parameters_key(parameters) for parameters in draws(space, 3_000))
    assert space.size == len(counts) == 6
    assert min(counts.values()) > 400
    assert not space.contains({"p": ["a", "b"]})
    assert not space.contains({"p": ["a", "a", "b"]})
    assert not space.contains({"p": ["a", "b", "c"]})
    assert not space.contains({"p": "ab3"})


def test_a_subset_has_as_many_options_as_it_may_in_their_order() -> None:
    space = parse_search_space({"s": {"type": "subset", "choices": ["a", "b", "c", "d"], "least": 1, "most": 2}})
    counts = Counter(parameters_key(parameters) for parameters in draws(space, 5_000))
    assert space.size == len(counts) == 4 + 6
    assert min(counts.values()) > 400
    assert not space.contains({"s": []})
    assert not space.contains({"s": ["b", "a"]})
    assert not space.contains({"s": ["a", "b", "c"]})
    assert not space.contains({"s": ["e"]})
    everything = parse_search_space({"s": {"type": "subset", "choices": [1, 2]}})
    assert {tuple(parameters["s"]) for parameters in draws(everything)} == {(), (1,), (2,), (1, 2)}


def test_their_grids_have_each_value_once() -> None:
    for described in (
        {"type": "permutation", "choices": [1, 2, 3, 4]},
        {"type": "subset", "choices": [1, 2, 3, 4, 5], "least": 2, "most": 4},
    ):
        space = parse_search_space({"x": described})
        points = [space.grid_point(index, 2) for index in range(space.grid_size(2))]
        assert len({parameters_key(point) for point in points if point is not None}) == space.size
        assert all(point is not None and space.contains(point) for point in points)


@pytest.mark.parametrize(
    ("described", "pointer"),
    [
        ({"type": "permutation"}, "/x"),
        ({"type": "permutation", "choices": []}, "/x/choices"),
        ({"type": "permutation", "choices": [1, 1]}, "/x/choices/1"),
        ({"type": "permutation", "choices": [{"_name": "n"}]}, "/x/choices/0"),
        ({"type": "permutation", "choices": list(range(ITEM_LIMIT + 1))}, "/x/choices"),
        ({"type": "subset", "choices": [1, 2], "least": 3}, "/x"),
        ({"type": "subset", "choices": [1, 2], "least": 2, "most": 1}, "/x"),
        ({"type": "subset", "choices": [1, 2], "most": 1.5}, "/x"),
    ],
)
def test_faults_of_permutations_and_subsets_are_named(described: dict[str, Any], pointer: str) -> None:
    assert pointer in faults_of({"x": described})


def test_a_permutation_of_very_many_options_is_practically_without_end() -> None:
    assert parse_search_space({"p": {"type": "permutation", "choices": list(range(80))}}).size > 1e100
    two = {name: {"type": "permutation", "choices": list(range(100))} for name in "abc"}
    assert parse_search_space(two).size == math.inf


def test_models_see_their_parts_and_values_come_back_from_them() -> None:
    space = parse_search_space(
        {"p": {"type": "permutation", "choices": ["a", "b", "c"]}, "s": {"type": "subset", "choices": ["a", "b"]}}
    )
    for parameters in draws(space, 50):
        flat = space.flatten(parameters)
        assert flat is not None
        for parameter in space.parameters:
            range_ = parameter.range
            assert isinstance(range_, Permutation | Subset)
            assert range_.contains(parameters[parameter.name])
            parts = range_.to_parts(flat[parameter.path])
            assert len(parts) == len(range_.parts)
            assert range_.from_parts(parts) == flat[parameter.path]


def test_nested_spaces_that_together_hold_more_than_a_float_can_tell_are_endless() -> None:
    wide = {f"p{number}": {"type": "int", "low": 1, "high": 2**53} for number in range(19)}
    nested = [{"_name": name, **wide, "q": {"type": "int", "low": 1, "high": 2**16}} for name in "abc"]
    space = parse_search_space({"a": {"_type": "choice", "_value": nested}, "b": {"type": "bool"}})

    assert space.size == math.inf


def test_of_parameters_outside_a_space_is_kept_what_each_of_its_own_can_take() -> None:
    before = parse_search_space(NESTED)
    for parameters in draws(before, 50):
        assert before.fitting(parameters) == before.flatten(parameters)
    layer = {"type": "categorical", "choices": ["none", {"_name": "conv", "depth": SMALL}]}
    other = parse_search_space({"a": SMALL, "b": OPTIMIZER, "layer": layer, "new": UNIT})
    given = {"a": -5, "b": "sgd", "layer": {"_name": "conv", "depth": 2, "gone": 1}, "old": True}
    assert other.fitting(given) == {"b": 0, "layer": 1, "layer/conv/depth": 2}
    assert other.fitting({"a": 2, "b": "an option that is gone"}) == other.fitting({"a": 2})
