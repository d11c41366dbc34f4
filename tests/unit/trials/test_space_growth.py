"""A search space that grows by what scripts ask for, in the branches in which they do."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire.growth import GrowthRefusedError, grown, options_of
from trials.wire.values import is_one_of
from tuner_service.domain.search_space import parse_search_space

KIND = {"type": "categorical", "choices": ["sgd", "adam", "lion"]}
DEPTH = {"type": "int", "low": 1, "high": 3}
SIZE = {"type": "float", "low": 0, "high": 1}


def when(space: dict[str, Any], name: str) -> Any:
    return space[name].get("when")


def test_a_parameter_is_there_where_it_was_asked_for_until_it_is_asked_for_everywhere() -> None:
    space = grown({}, "kind", KIND, {})
    space = grown(space, "size", SIZE, {"kind": "sgd"})
    assert when(space, "size") == {"kind": "sgd"}
    space = grown(space, "size", SIZE, {"kind": "lion"})
    assert when(space, "size") == {"kind": ["sgd", "lion"]}
    space = grown(space, "size", SIZE, {"kind": "adam"})
    assert space == {"kind": KIND, "size": SIZE}


def test_it_is_there_in_a_branch_of_several_parameters() -> None:
    space = grown(grown({}, "kind", KIND, {}), "depth", DEPTH, {})
    space = grown(space, "size", SIZE, {"kind": "sgd", "depth": 2})
    space = grown(space, "size", SIZE, {"kind": "sgd", "depth": 3})

    assert when(space, "size") == {"kind": "sgd", "depth": [2, 3]}
    parse_search_space(space)


def test_a_parameter_that_is_asked_for_without_another_does_not_depend_on_it() -> None:
    space = grown(grown({}, "kind", KIND, {}), "size", SIZE, {"kind": "sgd"})

    assert when(grown(space, "size", SIZE, {}), "size") is None


def test_one_that_depends_on_what_is_not_always_there_keeps_its_condition() -> None:
    space = grown(grown({}, "kind", KIND, {}), "nested", {"type": "bool"}, {"kind": "sgd"})
    space = grown(space, "size", SIZE, {"kind": "sgd", "nested": True})
    space = grown(space, "size", SIZE, {"kind": "sgd", "nested": False})

    assert when(space, "size") == {"kind": "sgd", "nested": [True, False]}


def test_what_the_space_has_already_changes_nothing() -> None:
    space = {"kind": KIND, "size": SIZE | {"when": {"kind": ["sgd", "adam"]}}, "free": SIZE}

    assert grown(space, "size", SIZE, {"kind": "adam"}) == space
    assert grown(space, "free", SIZE, {"kind": "lion"}) == space


def test_a_range_that_is_known_stays_as_it_is_written() -> None:
    """A bound of 0 means what 0.0 means, and the page writes both as 0."""
    space = {"kind": KIND, "size": SIZE | {"when": {"kind": "sgd"}}}
    space = grown(space, "size", SIZE | {"low": 0.0}, {"kind": "adam"})

    assert json.dumps(space["size"]) == json.dumps(SIZE | {"when": {"kind": ["sgd", "adam"]}})


def test_options_that_python_calls_equal_are_not() -> None:
    zero = {"type": "categorical", "choices": [0, True]}
    with pytest.raises(GrowthRefusedError, match="zero is asked for with another range"):
        grown({"zero": zero}, "zero", {"type": "categorical", "choices": [False, True]}, {})

    mixed = {"type": "categorical", "choices": [0, 1, True]}
    space = grown({"mixed": mixed}, "size", SIZE, {"mixed": 1})
    space = grown(space, "size", SIZE, {"mixed": True})
    assert json.dumps(when(space, "size")) == json.dumps({"mixed": [1, True]})


def test_a_parameter_has_one_range_and_a_condition_that_can_grow() -> None:
    space = {"kind": KIND, "size": SIZE, "other": SIZE | {"when": "kind == 'sgd'"}, "nni": 5}

    with pytest.raises(GrowthRefusedError, match="size is asked for with another range"):
        grown(space, "size", SIZE | {"high": 2}, {})
    with pytest.raises(GrowthRefusedError, match="nni is asked for with another range"):
        grown(space, "nni", SIZE, {})
    with pytest.raises(GrowthRefusedError, match="the condition of other is an expression"):
        grown(space, "other", SIZE, {"kind": "adam"})


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({"type": "bool"}, [True, False]), (KIND, KIND["choices"]), (DEPTH, [1, 2, 3]), (DEPTH | {"step": 2}, [1, 3]),
        (DEPTH | {"high": 17}, []), (DEPTH | {"high": 10**12}, []), (DEPTH | {"step": 0}, []),
        (DEPTH | {"low": "1"}, []),
        (SIZE, []), ({"type": "categorical", "choices": [None, {}]}, []), ({"type": "categorical", "choices": 5}, []),
        ({"type": "categorical", "choices": ["one"]}, []), ("float", []), (None, []),
    ],
)  # fmt: skip
def test_what_has_few_plain_options_says_a_branch(form: Any, options: list[Any]) -> None:
    assert options_of(form) == options


@given(st.lists(st.tuples(st.sampled_from(["sgd", "adam", "lion"]), st.integers(1, 3), st.booleans()), max_size=30))
def test_whatever_was_asked_for_is_in_the_space_and_what_was_not_in_no_branch_is_not(
    runs: list[tuple[str, int, bool]],
) -> None:
    space: dict[str, Any] = {}
    for kind, depth, _ in runs:
        space = grown(space, "kind", KIND, {})
        space = grown(space, "depth", DEPTH, {"kind": kind})
        if kind == "sgd":
            space = grown(space, "size", SIZE, {"kind": kind, "depth": depth})
    if not runs:
        return
    parsed = parse_search_space(space)
    for kind, depth, _ in runs:
        asked = {"kind": kind, "depth": depth} | ({"size": 0.5} if kind == "sgd" else {})
        assert parsed.contains(asked)


@pytest.mark.parametrize(
    ("value", "same", "others"),
    [
        (1, [1, 1.0], [True, "1", 2, [1], None]),
        (1.0, [1, 1.0], [True, "1"]),
        (True, [True], [1, 1.0, "True"]),
        (10**16, [10**16], [1e16]),
        ("a", ["a"], ["b", ["a"], None]),
        (None, [None], [0, False, ""]),
        (math.nan, [math.nan], [0.0]),
        ([1, {"a": 0}], [[1.0, {"a": 0.0}]], [[True, {"a": 0}]]),
    ],
)
def test_what_means_the_same_is_found_among_others(value: Any, same: list[Any], others: list[Any]) -> None:
    assert all(is_one_of(value, [*others, one]) for one in same)
    assert not is_one_of(value, others)
