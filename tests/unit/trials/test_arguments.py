"""Numbers and texts that scripts give: what is none is refused by the name of the argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trials.arguments import number, plain_text, seconds, whole_number


@pytest.mark.parametrize("given", [3, np.int64(3), np.array(3)])
def test_a_whole_number_is_pythons_own_afterwards(given: Any) -> None:
    found = whole_number(given, what="count", least=1, most=3)

    assert (type(found), found) == (int, 3)


@pytest.mark.parametrize("given", [True, 1.0, math.nan, "3", None, [3], np.float64(3), b"3", np.array([1, 2])])
def test_what_is_no_whole_number_is_a_type_error_that_names_it(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^count is a whole number, not .*, a "):
        whole_number(given, what="count")


@pytest.mark.parametrize(
    ("given", "said"), [(-1, "count is at least 0, not -1"), (8, "at most 7, not 8"), (10**100, "not beyond it")]
)
def test_a_whole_number_has_bounds(given: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        whole_number(given, what="count", most=7)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (math.nan, ValueError, "timeout, in seconds, is a number, not NaN"),
        (math.inf, ValueError, "timeout is at most 316224000 seconds, not inf"),
        (-0.5, ValueError, "timeout is at least 0 seconds, not -0.5"),
        ("5", TypeError, "timeout, in seconds, is a number, not '5', a str"),
        (None, TypeError, "not None, a NoneType"),
        (True, TypeError, "not True, a bool"),
        (10**400, TypeError, "is a number"),
    ],
)
def test_seconds_are_finite_and_not_negative(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        seconds(given, what="timeout")


def test_seconds_may_have_to_be_more_than_none() -> None:
    assert seconds(0, what="timeout") == 0.0
    with pytest.raises(ValueError, match="timeout is more than 0 seconds, not 0"):
        seconds(0, what="timeout", may_be_zero=False)


def test_a_number_may_be_infinite_and_of_numpy() -> None:
    assert number(math.inf, what="steps") == math.inf
    assert number(np.float32(0.5), what="steps") == 0.5


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (5, TypeError, "a name is text, not 5"),
        ("a\0b", ValueError, "has a NUL character"),
        ("\ud800", ValueError, "half a surrogate"),
    ],
)
def test_a_text_can_be_given_to_a_process(given: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        plain_text(given, what="a name")
    assert plain_text("naïve \udcff", what="a name") == "naïve \udcff"  # a byte that is no text, as variables hold it
