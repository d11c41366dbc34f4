"""What is said of parameters that a person chose, in spaces with conditions and constraints."""

from __future__ import annotations

import random

import pytest

from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters
from tuner_service.service.parameters import parameters_faults

SPACE = parse_search_space(
    {
        "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0, "high": 1, "when": {"optimizer": "sgd"}},
        "layer": {
            "_type": "choice",
            "_value": ["plain", {"_name": "conv", "pad": {"type": "bool", "when": {"optimizer": "adam"}}}],
        },
        "batch": {"type": "int", "low": 1, "high": 64},
        "order": {"type": "permutation", "choices": ["a", "b"]},
        "constraints": ["batch <= 32 or optimizer == 'sgd'"],
    }
)
FINE: Parameters = {"optimizer": "adam", "layer": "plain", "batch": 8, "order": ["b", "a"]}


def test_what_the_space_gives_has_no_fault() -> None:
    rng = random.Random(1)
    for _ in range(100):
        assert parameters_faults(SPACE, SPACE.sample(rng)) == []


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"optimizer": "sgd"}, "/momentum", "missing"),
        ({"momentum": 0.5}, "/momentum", "condition"),
        ({"layer": {"_name": "conv"}}, "/layer/pad", "missing"),
        ({"layer": {"_name": "conv", "pad": 3}}, "/layer/pad", "outside"),
        ({"order": ["a", "a"]}, "/order", "outside"),
        ({"batch": 33}, "", "breaks the constraint"),
        ({"batsh": 3}, "/batsh", "did you mean 'batch'"),
    ],
)
def test_a_fault_is_told_exactly_where_the_space_does_not_contain_them(
    changes: Parameters, pointer: str, words: str
) -> None:
    given = FINE | changes
    (fault,) = parameters_faults(SPACE, given)
    assert fault.pointer == pointer
    assert words in fault.message
    assert not SPACE.contains(given)
