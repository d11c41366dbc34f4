"""Whatever stands anywhere in a body: the answer is 201 or 422, never a mistake of ours."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.api_service import a_body, an_api_service

ODD_VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 2**70, "", "x", "\n", "é\u2028", "9" * 5_000),
    *([], [None], [[]], {}, {"": None}, {"_type": "choice"}, {"name": []}, {"_value": {"a": [1]}}),
    *([1, "2", 3.0, None], {"a": {"b": {"c": [{}]}}}, ["a"] * 200),
]
FULL = a_body(
    assessor={"name": "median_stop", "args": {}},
    tuner={"name": "tpe", "args": {"n_startup_trials": 3}},
    search_space={
        "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
        "n": {"type": "int", "low": 1, "high": 9, "log": True},
        "layer": {"_type": "choice", "_value": [1, {"_name": "conv", "kernel": {"_type": "choice", "_value": [3, 5]}}]},
    },
    budget={"trials": 3, "parallel": 2, "duration": "1h", "failures": 3},
    trial={
        "command": ["python", "train.py"],
        "code": {"files": [{"path": "a", "content": "b", "mode": "755"}]},
        "arguments": {"prefix": "--", "delimiter": " "},
        "environment": {"A": "1"},
        "keep": {"last": 1, "best": 1},
        "resources": {"cpus": 1, "gpus": 0},
        "metrics_pattern": r"(?P<loss>\d+)",
    },
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def replaced(path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    body = copy.deepcopy(FULL)
    target: Any = body
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return body


@pytest.mark.parametrize("path", places(FULL), ids=lambda path: "/" + "/".join(map(str, path)))
def test_an_odd_value_at_any_place_is_taken_or_refused(path: tuple[Any, ...]) -> None:
    api = an_api_service()

    for value in ODD_VALUES:
        content = json.dumps(replaced(path, value))
        answer = api.client.post(
            "/api/v1/experiments?dry_run=true", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code in {200, 413, 422}, (value, answer.text)
        if answer.status_code == 422:
            assert answer.json()["errors"]
    assert api.runner.commands == []
