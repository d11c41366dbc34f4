"""Rows of columns stand for parameters exactly, and what arithmetic settles is what the space itself says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tuner_service.domain.search_space import parse_search_space
from tuner_service.tuners.model_columns import Columns

NUMBER = {"type": "float", "low": 0, "high": 1}
SPACES: dict[str, dict[str, Any]] = {
    "numbers": {
        "lr": {"_type": "loguniform", "_value": [1e-4, 0.1]},
        "batch": {"type": "int", "low": 16, "high": 512, "log": True},
        "layers": {"type": "int", "low": 1, "high": 5},
        "momentum": {"_type": "quniform", "_value": [0, 1, 0.1]},
        "width": {"_type": "qloguniform", "_value": [1, 100, 2]},
        "noise": {"_type": "normal", "_value": [0, 1]},
        "shift": {"_type": "qnormal", "_value": [0, 1, 0.5]},
        "fixed": {"type": "const", "value": 3},
    },
    "choices": {
        "kind": {"type": "categorical", "choices": ["a", "b", "c"]},
        "size": {"type": "ordinal", "choices": [1, 2, 4]},
        "flag": {"type": "bool"},
        "only with a or b": NUMBER | {"when": {"kind": ["a", "b"]}},
    },
    "nested": {
        "booster": {
            "_type": "choice",
            "_value": [
                {"_name": "linear"},
                {"_name": "tree", "eta": NUMBER, "depth": {"type": "int", "low": 1, "high": 9}},
                {"_name": "dart", "eta": NUMBER, "drop": {"type": "bool"}},
            ],
        }
    },
    "lists and expressions": {
        "order": {"type": "permutation", "choices": [1, 2, 3]},
        "features": {"type": "subset", "choices": ["a", "b", "c"]},
        "depth": {"type": "int", "low": 1, "high": 6},
        "decay": NUMBER | {"when": "depth > 3"},
    },
}


@pytest.fixture(params=list(SPACES))
def columns(request: pytest.FixtureRequest) -> Columns:
    return Columns(parse_search_space(SPACES[request.param]))


def test_a_row_decodes_to_the_parameters_it_was_made_of(columns: Columns) -> None:
    rng = random.Random(0)
    for _ in range(100):
        parameters = columns.space.sample(rng)
        row = columns.encode(parameters)
        assert row is not None
        assert columns.decode(row) == parameters


def test_random_rows_and_neighbours_stand_where_encode_has_their_parameters(columns: Columns) -> None:
    rng = np.random.default_rng(0)
    drawn = columns.random(60, rng)
    for row in np.concatenate([drawn, columns.neighbours(drawn[:5], 20, rng, reach=0.1)]):
        again = columns.encode(columns.decode(row))
        assert again is not None
        assert np.allclose(again, row, atol=1e-9)


def test_equal_parameters_of_sibling_options_share_a_column() -> None:
    assert Columns(parse_search_space(SPACES["nested"])).width == 4


def test_what_lies_outside_the_space_has_no_row(columns: Columns) -> None:
    assert columns.encode({"nothing": 1}) is None


def test_a_neighbour_differs_from_its_centre() -> None:
    columns = Columns(parse_search_space({"size": {"type": "ordinal", "choices": [1, 2, 4, 8]}, "lr": NUMBER}))
    rng = np.random.default_rng(1)
    centre = columns.random(1, rng)
    varied = columns.neighbours(centre, 50, rng, reach=0.1)
    assert (np.abs(varied - centre).sum(axis=1) > 0).mean() > 0.5
