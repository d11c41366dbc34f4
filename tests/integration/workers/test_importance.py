"""Importance, computed in a process of its own."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.search_space import parse_search_space
from tuner_service.workers.importance import TRIALS_LEAST, importance

SPACE = {
    "x": {"type": "float", "low": -1, "high": 1},
    "noise": {"type": "float", "low": -1, "high": 1},
    "option": {"type": "categorical", "choices": ["a", "b"]},
    "only": {"type": "const", "value": 3},
    "inner": {"type": "int", "low": 0, "high": 5, "when": {"option": "b"}},
}


def asked(trials: int) -> dict[str, Any]:
    space, rng = parse_search_space(SPACE), random.Random(2)
    parameters = [space.sample(rng) for _ in range(trials)]
    return {"search_space": SPACE, "parameters": parameters, "losses": [p["x"] ** 2 for p in parameters]}


def test_the_parameter_that_matters_has_the_largest_share() -> None:
    found = asyncio.run(importance(asked(200)))
    shares = found["importance"]
    assert next(iter(shares)) == "x"
    assert shares["x"] > 0.6
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"x", "noise", "option", "inner"}
    assert found["trials"] == 200


def test_of_a_few_trials_nothing_is_told() -> None:
    found = asyncio.run(importance(asked(TRIALS_LEAST - 1)))
    assert found["importance"] == {}
    assert str(TRIALS_LEAST) in found["message"]


def test_what_its_process_could_not_do_is_told() -> None:
    wrong = {**asked(20), "search_space": {"x": "nothing"}}
    with pytest.raises(UnavailableError, match="importance could not be computed"):
        asyncio.run(importance(wrong))
