"""NNI's documented search-space examples: what is drawn lies in the documented ranges and on the documented grids.

After NNI 3.0, "Search Space" and the search spaces of its own tuner tests, in words of our own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.tuners.registry import create_tuner

DRAWS = 400
TOLERANCE = 1e-9

EXAMPLES: dict[str, dict[str, Any]] = {
    "mnist": {
        "dropout_rate": {"_type": "uniform", "_value": [0.5, 0.9]},
        "conv_size": {"_type": "choice", "_value": [2, 3, 5, 7]},
        "hidden_size": {"_type": "choice", "_value": [124, 512, 1024]},
        "batch_size": {"_type": "choice", "_value": [16, 32]},
        "learning_rate": {"_type": "choice", "_value": [0.0001, 0.001, 0.01, 0.1]},
    },
    "quick start": {
        "features": {"_type": "choice", "_value": [128, 256, 512, 1024]},
        "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
        "momentum": {"_type": "uniform", "_value": [0, 1]},
    },
    "nested": {
        "layer0": {
            "_type": "choice",
            "_value": [
                {"_name": "Empty"},
                {"_name": "Conv", "kernel_size": {"_type": "choice", "_value": [1, 2, 3, 5]}},
                {"_name": "Max_pool", "pooling_size": {"_type": "choice", "_value": [2, 3, 5]}},
                {"_name": "Avg_pool", "pooling_size": {"_type": "choice", "_value": [2, 3, 5]}},
            ],
        },
        "layer1": {
            "_type": "choice",
            "_value": [{"_name": "Empty"}, {"_name": "Linear", "units": {"_type": "randint", "_value": [8, 64]}}],
        },
    },
    "batch": {
        "combine_params": {
            "_type": "choice",
            "_value": [
                {"optimizer": "Adam", "learning_rate": 0.00001},
                {"optimizer": "Adam", "learning_rate": 0.0001},
                {"optimizer": "SGD", "learning_rate": 0.01},
            ],
        },
    },
}
RANGES: dict[str, tuple[list[Any], Callable[[Any], bool]]] = {
    "choice": ([[1, "two", 3.5]], lambda v: v in (1, "two", 3.5)),
    "randint": ([[-2, 5], [0, 1], [3, 7]], lambda v: isinstance(v, int)),
    "uniform": ([[-1, 1], [0.25, 0.25]], lambda v: isinstance(v, float)),
    "quniform": ([[0, 10, 2], [0.05, 0.95, 0.1], [2, 9, 4], [-1.5, 1.5, 0.5]], lambda v: isinstance(v, float)),
    "loguniform": ([[1e-5, 1e-1], [1, 1024]], lambda v: v > 0),
    "qloguniform": ([[1, 1000, 10], [0.5, 8, 0.25]], lambda v: v > 0),
    "normal": ([[0, 1], [100, 0.5]], math.isfinite),
    "qnormal": ([[0, 10, 2.5], [4, 1, 1]], math.isfinite),
    "lognormal": ([[0, 1], [-2, 0.5]], lambda v: v > 0),
    "qlognormal": ([[0, 1, 0.5], [3, 1, 2]], lambda v: v >= 0),
}
CASES = [(kind, value) for kind, (values, _) in RANGES.items() for value in values]


def drawn(space: dict[str, Any]) -> list[dict[str, Any]]:
    parsed, rng = parse_search_space(space), random.Random(3)
    return [parsed.sample(rng) for _ in range(DRAWS)]


def is_multiple(value: float, q: float) -> bool:
    return abs(value / q - round(value / q)) < TOLERANCE * max(1.0, abs(value / q))


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_values_lie_in_the_documented_range(kind: str, value: list[Any]) -> None:
    values = [parameters["x"] for parameters in drawn({"x": {"_type": kind, "_value": value}})]
    assert all(map(RANGES[kind][1], values))
    if kind == "randint":
        assert all(value[0] <= v < value[1] for v in values)
    elif "uniform" in kind:
        assert all(value[0] <= v <= value[1] for v in values)


@pytest.mark.parametrize(("kind", "value"), [case for case in CASES if case[0] in {"quniform", "qloguniform"}])
def test_quantised_values_are_multiples_of_q_clipped_into_the_range(kind: str, value: list[Any]) -> None:
    low, high, q = value
    for parameters in drawn({"x": {"_type": kind, "_value": value}}):
        assert is_multiple(parameters["x"], q) or parameters["x"] in {low, high}
    possible = {min(max(round(low / q) * q + k * q, low), high) for k in range(int((high - low) / q) + 2)}
    seen = [parameters["x"] for parameters in drawn({"x": {"_type": kind, "_value": value}})]
    assert all(any(abs(v - p) < TOLERANCE for p in possible) for v in seen)


@pytest.mark.parametrize(("kind", "value"), [case for case in CASES if case[0] in {"qnormal", "qlognormal"}])
def test_quantised_normals_are_multiples_of_q(kind: str, value: list[Any]) -> None:
    assert all(is_multiple(parameters["x"], value[2]) for parameters in drawn({"x": {"_type": kind, "_value": value}}))


@pytest.mark.parametrize("name", list(EXAMPLES))
@pytest.mark.parametrize("tuner", ["random", "tpe", "grid", "evolution", "quasi_random"])
def test_what_a_tuner_proposes_for_an_example_has_its_names_and_options(name: str, tuner: str) -> None:
    space = EXAMPLES[name]
    made = create_tuner(tuner, {}, space=parse_search_space(space), objective=Objective(metric="default"))
    for number in range(1, 4):
        parameters = made.suggest(number, random.Random(number))
        assert isinstance(parameters, dict)
        made.pending(number, parameters)
        assert parameters.keys() == space.keys()
        for key, described in space.items():
            if described["_type"] != "choice":
                continue
            value = parameters[key]
            if isinstance(value, dict) and "_name" in value:
                (option,) = (o for o in described["_value"] if o["_name"] == value["_name"])
                assert value.keys() == option.keys()
                continue
            assert value in described["_value"]


def test_normals_have_their_mean_and_deviation() -> None:
    values = [parameters["x"] for parameters in drawn({"x": {"_type": "normal", "_value": [3, 2]}})]
    mean = sum(values) / DRAWS
    assert mean == pytest.approx(3, abs=0.4)
    assert math.sqrt(sum((v - mean) ** 2 for v in values) / DRAWS) == pytest.approx(2, abs=0.3)
