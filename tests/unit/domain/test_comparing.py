"""Spaces beside one another: the same, one inside the other, what a warm start takes."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_service.domain.search_space import SearchSpace, alike, parse_search_space


def only(described: dict[str, Any]) -> SearchSpace:
    return parse_search_space({"x": described})


def uniform(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, **more}


def integers(low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"type": "int", "low": low, "high": high, **more}


def options(*values: Any) -> dict[str, Any]:
    return {"_type": "choice", "_value": list(values)}


NORMAL = {"_type": "normal", "_value": [0, 1]}
LOGNORMAL = {"_type": "lognormal", "_value": [0, 1]}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (uniform(0, 1), uniform(0.2, 0.8)),
        (uniform(0, 1), uniform(0.2, 0.8, log=True)),
        (uniform(0, 1), {"_type": "quniform", "_value": [0, 1, 0.25]}),
        (uniform(0, 9), integers(1, 3)),
        (integers(0, 10), integers(2, 8, step=2)),
        (integers(0, 10, step=2), integers(2, 8, step=4)),
        (uniform(0, 1, step=0.1), uniform(0.2, 0.8, step=0.2)),
        ({"_type": "quniform", "_value": [0, 4, 1]}, integers(1, 3)),
        (options("a", "b", 3), options(3, "a")),
        (options("a", {"_name": "n", "y": uniform(0, 2)}), options({"_name": "n", "y": uniform(0, 1)})),
        (NORMAL, uniform(-5, 5)),
        (NORMAL, LOGNORMAL),
        (LOGNORMAL, uniform(1, 5)),
        (
            {"type": "subset", "choices": [1, 2, 3]},
            {"type": "subset", "choices": [1, 2, 3], "least": 1, "most": 2},
        ),
        ({"type": "permutation", "choices": [1, 2]}, {"type": "permutation", "choices": [2, 1]}),
    ],
)
def test_a_wider_range_covers_a_narrower_one(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    assert only(outer).covers(only(inner))
    assert only(outer).covers(only(outer))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (uniform(0.2, 0.8), uniform(0, 1)),
        (integers(0, 10, step=2), integers(0, 10)),
        (integers(0, 10), uniform(0, 10)),
        (integers(0, 30_000, step=2), integers(0, 30_000)),
        (options("a"), options("a", "b")),
        (options("n"), options({"_name": "n"})),
        (options({"_name": "n", "y": uniform(0, 1)}), options({"_name": "n", "y": uniform(0, 2)})),
        (uniform(0, 1), NORMAL),
        (LOGNORMAL, uniform(-1, 5)),
        (options(1, 2), integers(1, 2)),
        ({"type": "subset", "choices": [1, 2], "most": 1}, {"type": "subset", "choices": [1, 2]}),
        ({"type": "permutation", "choices": [1, 2]}, {"type": "subset", "choices": [1, 2]}),
    ],
)
def test_what_is_not_surely_covered_is_not_covered(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    assert not only(outer).covers(only(inner))


def test_names_conditions_and_constraints_count() -> None:
    plain = parse_search_space({"x": uniform(0, 1), "y": uniform(0, 1)})
    constrained = parse_search_space({"x": uniform(0, 1), "y": uniform(0, 1), "constraints": ["x<y"]})
    conditional = parse_search_space({"x": uniform(0, 1), "y": uniform(0, 1, when="x > 0.5")})
    assert plain.covers(constrained)
    assert not constrained.covers(plain)
    assert not plain.covers(conditional)
    assert not plain.covers(only(uniform(0, 1)))
    assert not plain.covers(parse_search_space({"x": uniform(0, 1), "z": uniform(0, 1)}))


def test_spaces_are_the_same_however_they_were_written() -> None:
    one = parse_search_space({"a": {"_type": "uniform", "_value": [0, 1]}, "b": options(1, 2)})
    other = parse_search_space({"b": {"type": "categorical", "choices": [2, 1.0]}, "a": uniform(0, 1)})
    assert one.same_as(other)
    assert not one.same_as(parse_search_space({"a": uniform(0, 2), "b": options(1, 2)}))


def test_a_warm_start_takes_what_fits_and_fills_in_what_can_only_be_one_thing() -> None:
    space = parse_search_space(
        {
            "x": uniform(0, 1),
            "mode": {"type": "const", "value": "fast"},
            "n": integers(3, 3),
            "layer": options("none", {"_name": "conv", "kernel": integers(1, 5)}),
            "deep": options({"_name": "only"}),
            "extra": uniform(0, 1, when={"layer": "none"}),
        }
    )
    full = {"mode": "fast", "n": 3, "deep": {"_name": "only"}}
    conv = {"_name": "conv", "kernel": 2}
    assert space.adapted({"x": 0.5, "old": 7, "layer": {**conv, "gone": 1}}) == {"x": 0.5, **full, "layer": conv}
    assert space.adapted({"x": 0.5, "layer": "none", "extra": 0.25}) == {
        "x": 0.5, **full, "layer": "none", "extra": 0.25,
    }  # fmt: skip
    assert space.adapted({"x": 2.0, "layer": conv}) is None
    assert space.adapted({"layer": conv}) is None
    assert space.adapted({"x": 0.5, "layer": {"_name": "conv"}}) is None
    assert space.adapted("nothing") is None  # type: ignore[arg-type]  # what another experiment may have imported


def test_a_warm_start_knows_nested_parameters_that_depend_on_the_space_around_them() -> None:
    nested = {"_name": "conv", "pad": integers(0, 2, when={"mode": "slow"}), "fixed": {"type": "const", "value": 7}}
    space = parse_search_space({"mode": options("slow", "fast"), "layer": options("none", nested)})
    slow = {"mode": "slow", "layer": {"_name": "conv", "pad": 1, "fixed": 7}}
    fast = {"mode": "fast", "layer": {"_name": "conv", "fixed": 7}}
    assert space.adapted({"mode": "slow", "layer": {"_name": "conv", "pad": 1}}) == slow
    assert space.adapted({"mode": "fast", "layer": {"_name": "conv", "pad": 1}}) == fast
    assert space.adapted({"mode": "slow", "layer": {"_name": "conv"}}) is None


def test_a_warm_start_fills_in_a_parameter_that_can_only_be_null() -> None:
    space = parse_search_space({"x": uniform(0, 1), "schedule": {"type": "const", "value": None}})
    assert space.adapted({"x": 0.5}) == {"x": 0.5, "schedule": None}


# ── what makes no revision ──────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        (uniform(0.0, 1.0), uniform(0, 1), True),
        ({"_type": "quniform", "_value": [0.0, 4.0, 1.0]}, {"_type": "quniform", "_value": [0, 4, 1]}, True),
        (options({"_name": "a", "k": uniform(1.0, 2.0)}), options({"_name": "a", "k": uniform(1, 2)}), True),
        (options(0.0, 1.0), options(0, 1), False),
        (options(0, 1), options(False, True), False),
        (uniform(0.0, 1.0), uniform(0, 2), False),
        (uniform(0.0, 1.0), {"_type": "uniform", "_value": [0, 1]}, False),
        ({"type": "odd", "low": 1}, {"type": "odd", "low": 1.0}, False),
        ({"type": "odd", "low": 1}, {"low": 1, "type": "odd"}, True),
    ],
)
def test_what_a_browser_writes_shorter_is_alike_unless_trials_would_be_given_another_type(
    one: dict[str, Any], other: dict[str, Any], is_alike: bool
) -> None:
    beside = {"y": uniform(0.5, 1.0)}
    assert alike({"x": one, **beside}, {**beside, "x": other}) is is_alike


def test_no_space_is_like_another_one() -> None:
    assert not alike({"x": uniform(0, 1)}, None)
