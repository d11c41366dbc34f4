from __future__ import annotations

from typing import Any

import pytest

from tuner_service.domain.algorithm_options import (
    AlgorithmOption,
    RegisteredAlgorithm,
    check_options,
    contradictions,
    registered_class,
)
from tuner_service.domain.errors import InputError


def registered(*options: AlgorithmOption, **fields: Any) -> dict[str, RegisteredAlgorithm]:
    """One algorithm, ``own``, with these options."""
    own = RegisteredAlgorithm(name="own", home="own:Own", meaning="for these tests", options=options, **fields)
    return {"own": own}


def stepped(first: int) -> dict[str, RegisteredAlgorithm]:
    """``first``: the default of what must not lie above ``last``."""
    return registered(
        AlgorithmOption(name="first", default=first, low=1, high=99, meaning="a whole number"),
        AlgorithmOption(name="last", default=9, low=1, high=99, meaning="a whole number"),
        ascending=(("first", "last"),),
    )


REGISTERED = registered(
    AlgorithmOption(name="count", default=3, low=1, high=9, meaning="a whole number"),
    AlgorithmOption(name="share", default=0.5, low=0, high=1, meaning="a number"),
    AlgorithmOption(name="fast", default=False, meaning="yes or no"),
)


@pytest.mark.parametrize(
    ("args", "pointer", "words"),
    [
        ({"first": 10}, "/args/first", "first (10) must not lie above last (9, its default); give both"),
        ({"first": 10, "last": 9}, "/args/first", "first (10) must not lie above last (9)"),
        ({"first": 9}, "", ""),
        ({}, "", ""),
        ({"last": 1}, "", ""),
    ],
)
def test_options_that_are_fine_and_do_not_go_together_are_named(args: dict[str, Any], pointer: str, words: str) -> None:
    faults = [(fault.pointer, fault.message) for fault in contradictions(stepped(first=1), "own", args)]

    assert faults == ([(pointer, words)] if words else [])


def test_of_two_that_do_not_go_together_the_one_that_was_given_is_blamed() -> None:
    (fault,) = contradictions(stepped(first=5), "own", {"last": 4})
    assert (fault.pointer, fault.message) == (
        "/args/last",
        "first (5, its default) must not lie above last (4); give both",
    )


@pytest.mark.parametrize(("last", "words"), [(4, "first (4) must lie below last (4)"), (5, "")])
def test_one_that_has_to_lie_below_another_may_not_be_the_same(last: int, words: str) -> None:
    options = stepped(first=1)["own"].options
    faults = contradictions(registered(*options, below=(("first", "last"),)), "own", {"first": 4, "last": last})
    assert [fault.message for fault in faults] == ([words] if words else [])


@pytest.mark.parametrize("args", [{}, {"count": 1, "share": 1, "fast": True}, {"count": 9, "share": 0.25}])
def test_options_within_their_bounds_are_fine(args: dict[str, Any]) -> None:
    assert not check_options(REGISTERED, "own", args, kind="tuner")


@pytest.mark.parametrize(
    ("args", "pointer", "words"),
    [
        ({"count": 0}, "/args/count", "between 1 and 9"),
        ({"count": 2.0}, "/args/count", "integer"),
        ({"count": True}, "/args/count", "integer"),
        ({"share": "0.5"}, "/args/share", "number"),
        ({"share": 2}, "/args/share", "between 0 and 1"),
        ({"fast": 1}, "/args/fast", "true or false"),
        ({"a/b": 1}, "/args/a~1b", "count, share, fast"),
        (None, "/args", "object"),
    ],
)
def test_a_fault_says_where_and_what_would_be_right(args: Any, pointer: str, words: str) -> None:
    (fault,) = check_options(REGISTERED, "own", args, kind="tuner")
    assert fault.pointer == pointer
    assert words in fault.message


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    (fault,) = check_options(REGISTERED, "their", {}, kind="tuner")
    assert fault.pointer == "/name"
    assert "own" in fault.message


def test_a_number_beside_the_bounds_may_have_a_meaning_of_its_own() -> None:
    option = AlgorithmOption(name="size", default=0, meaning="how many", low=2, high=9, beside=0)

    assert option.problem(0) is option.problem(2) is None
    assert option.problem(1) == "must be 0, or lie between 2 and 9, not 1"


def test_a_text_is_one_of_its_choices() -> None:
    option = AlgorithmOption(name="backend", default="one", meaning="which", choices=("one", "two"))
    assert option.problem("two") is None
    assert option.problem("three") == option.problem(3) == "must be one of one, two"
    assert not option.is_required


def test_a_text_without_choices_is_any_text() -> None:
    option = AlgorithmOption(name="metric", default="", meaning="which")
    assert option.problem("anything") is None
    assert option.problem(3) == "must be text"


def test_no_class_is_imported_for_options_that_are_wrong() -> None:
    with pytest.raises(InputError, match="between 1 and 9"):
        registered_class(REGISTERED, "own", {"count": 0}, kind="tuner")


def test_a_list_without_a_default_must_be_given_and_holds_objects() -> None:
    option = AlgorithmOption(name="points", default=(), meaning="the points", low=1, high=2)
    algorithm = RegisteredAlgorithm(name="listed", home="m:C", meaning="a list", options=(option,))
    assert option.is_required
    assert option.problem([{"x": 1}]) is None
    for wrong in ([], [{}, {}, {}], [1], "points", None):
        assert option.problem(wrong) == "must be a list of 1 to 2 objects"
    (fault,) = check_options({"listed": algorithm}, "listed", {}, kind="tuner")
    assert fault.pointer == "/args"
    assert "listed needs points" in fault.message
    assert not check_options({"listed": algorithm}, "listed", {"points": [{}]}, kind="tuner")
