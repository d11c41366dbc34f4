from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.domain.expressions import NODE_LIMIT, TEXT_LIMIT, AbsentError, parse_expression

VALUES: dict[str, Any] = {
    "x": 3,
    "y": 0.5,
    "name": "adam",
    "flag": True,
    "items": ["a", "b"],
    "layer": {"_name": "conv", "kernel": 5, "inner": {"_name": "deep", "by": 2}},
    "learning-rate": 0.1,
    "nothing": None,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x + 1", 4),
        ("x * y - 1 / 2", 1.0),
        ("x // 2 + x % 2", 2),
        ("-x ** 2", -9),
        ("+x", 3),
        ("x * 2 <= 6 < 7", True),
        ("x > 3 or y == 0.5", True),
        ("x > 3 and y == 0.5", False),
        ("not flag", False),
        ("name in ['sgd', 'adam']", True),
        ("name not in ('sgd', 'adam')", False),
        ("'a' in items and len(items) == 2", True),
        ("1 if name == 'adam' else x", 1),
        ("1 if name != 'adam' else x", 3),
        ("max(x, 7) + min(x, 1) + abs(-x)", 11),
        ("sqrt(x + 1) + log2(8) + floor(y) + ceil(y) + round(2.4)", 8),
        ("layer == 'conv'", True),
        ("layer.kernel * 2", 10),
        ("layer.inner == 'deep' and layer.inner.by == 2", True),
        ("parameter('learning-rate') * 10", 1.0),
        ("nothing == None", True),
        ("sum([x, y])", 3.5),
        ("(x - 1) ** 64 * 2 ** 64 * 2 ** 64 * 2 ** 64", 2**256),
    ],
)
def test_an_expression_has_the_value_that_python_would_give_it(text: str, value: Any) -> None:
    assert parse_expression(text).evaluate(VALUES) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be an expression"),
        (None, "must be an expression"),
        ("x" * (TEXT_LIMIT + 1), "1000 characters"),
        ("x +", "no expression"),
        ("x; y", "no expression"),
        ("1 < 2", "names no parameter"),
        ("x(1)", "no function x"),
        ("x.__class__()", "Call"),
        ("open('f') or x", "no function open"),
        ("abs() + x", "needs a value"),
        ("parameter(x)", "in quotes"),
        ("parameter()", "in quotes"),
        ("[i for i in x]", "ListComp"),
        ("lambda: x", "Lambda"),
        ("x[0]", "Subscript"),
        ("x is y", "Is"),
        ("x @ y", "MatMult"),
        ("x & y", "BitAnd"),
        ("~x", "UnaryOp"),
        ("__import__ + x", "no name"),
        ("x + b'1'", "neither a number nor a text"),
        ("(1).real + x", "Attribute"),
        ("max(x, key=y)", "Call"),
        ("f'{x}'", "JoinedStr"),
        ("+".join(["x"] * NODE_LIMIT), "parts"),
        ("(" * 500 + "x" + ")" * 400, "no expression"),
    ],
)
def test_what_is_no_harmless_expression_is_refused_with_the_reason(text: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "(x - 1) ** 64 * 2 ** 64 * 2 ** 64 * 2 ** 64 + 1 > 0",
        "x / 0",
        "name + 1",
        "x < name",
        "x ** 65",
        "10 ** 60 ** 2 * x",
        "(-x) ** y",
        "len(x)",
    ],
)
def test_one_that_cannot_be_computed_does_not_hold(text: str) -> None:
    assert not parse_expression(text).holds(VALUES, absent=True)


@pytest.mark.parametrize("text", ["other > 1", "layer.other > 1", "x.kernel > 1", "parameter('other') > 1"])
def test_one_that_names_what_is_not_there_is_told_apart(text: str) -> None:
    expression = parse_expression(text)
    with pytest.raises(AbsentError):
        expression.evaluate(VALUES)
    assert expression.holds(VALUES, absent=True)
    assert not expression.holds(VALUES, absent=False)


def test_equal_expressions_are_equal_and_name_their_parameters() -> None:
    one, other = parse_expression("(x+1) < layer.kernel"), parse_expression("x + 1 < layer.kernel")
    assert one == other
    assert one.names == {"x", "layer"}
    assert parse_expression("max(a, parameter('b c')) > 1").names == {"a", "b c"}


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except ValueError:
        return
    assert expression.holds({}, absent=False) in {True, False}


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_numbers_of_any_size_are_survived(x: float, n: int) -> None:
    for text in ("x * n", "x ** n", "n ** n", "exp(x)", "floor(x) * n", "n / x"):
        assert parse_expression(f"{text} < 5").holds({"x": x, "n": n}, absent=True) in {True, False}
    assert math.isfinite(1.0)


def test_a_text_may_be_as_long_as_the_bound_says() -> None:
    assert parse_expression("x".ljust(TEXT_LIMIT)).evaluate(VALUES) == 3
