"""What a value of a parameter may be, and where a fault of it stands."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tuner_service.domain.algorithm_options import AlgorithmOption
from tuner_service.domain.errors import InputError
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.values import VALUE_DEPTH, WHOLE_NUMBER_LIMIT, flattened, value_faults


def test_parameters_of_nested_spaces_stand_beside_the_choice_that_has_them() -> None:
    parameters = {"lr": 0.1, "layer": {"_name": "conv", "size": 3, "next": {"_name": "none"}}, "shape": {"x": 1}}

    assert flattened(parameters) == {
        "lr": 0.1,
        "layer._name": "conv",
        "layer.size": 3,
        "layer.next._name": "none",
        "shape": {"x": 1},
    }


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def named(depth: int) -> Any:
    return {"a": named(depth - 1)} if depth else 1


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, "", "é\n", 0, -1.5, WHOLE_NUMBER_LIMIT, {"": [1, (2,)], "a.b": {"c": None}}),
        *(nested(VALUE_DEPTH), named(VALUE_DEPTH)),
    ],
    ids=ascii,
)
def test_what_every_later_step_can_take_has_no_fault(value: Any) -> None:
    assert list(value_faults(value)) == []


@pytest.mark.parametrize(
    ("value", "pointer", "message"),
    [
        ({"a": [1, math.nan]}, "/a/1", "no finite number"),
        ({"a": math.inf}, "/a", "no finite number"),
        (["x", "\ud800"], "/1", "half a surrogate pair"),
        ({"a/b~": "\0"}, "/a~1b~0", "NUL"),
        ({"a": {"\udfff": 1}}, "/a", "half a surrogate pair"),
        ({"a": {3: 1}}, "/a", "no text"),
        ({"a": 2**63}, "/a", "64 bits"),
        ({"a": object}, "/a", "no JSON value"),
        (nested(VALUE_DEPTH + 1), "/0" * (VALUE_DEPTH + 1), "nested more than"),
        (named(VALUE_DEPTH + 1), "/a" * (VALUE_DEPTH + 1), "nested more than"),
    ],
    ids=ascii,
)
def test_a_fault_is_told_where_it_stands(value: Any, pointer: str, message: str) -> None:
    [(where, what)] = value_faults(value)
    assert where == pointer
    assert message in what


@pytest.mark.parametrize(
    "described",
    [
        {"_type": "normal", "_value": [1e308, 1e308]},
        {"_type": "lognormal", "_value": [-1e154, 3]},
        {"_type": "uniform", "_value": [0, 1.7e308]},
        {"type": "categorical", "choices": [2**70]},
        {"type": "categorical", "choices": [{"\ud800": 1}]},
    ],
    ids=ascii,
)
def test_ranges_of_what_could_not_be_taken_are_refused(described: Any) -> None:
    with pytest.raises(InputError):
        parse_search_space({"x": described})


def test_names_and_options_that_could_not_be_taken_are_refused() -> None:
    for space in ({"\ud800": {"type": "bool"}}, {"x": {"_type": "choice", "_value": [{"_name": "\0"}]}}):
        with pytest.raises(InputError):
            parse_search_space(space)


def test_an_option_of_an_algorithm_is_held_to_the_same() -> None:
    assert "64 bits" in str(AlgorithmOption(name="n", default=1, meaning="").problem(10**400))
