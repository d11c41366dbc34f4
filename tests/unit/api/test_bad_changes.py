"""One wrong value for every field of the bodies that change a running search."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api_service import ApiService, an_api_service
from tuner_service.api.bodies.change_bodies import (
    AddTrialBody,
    ChangeBody,
    CloneBody,
    ImportBody,
    ResultBody,
    RetryBody,
    SearchSpaceBody,
)
from tuner_service.api.bodies.schemas import Body

BUDGET_WRONG: dict[str, list[Any]] = {
    "/budget": [5],
    "/budget/trials": [0, "many", True],
    "/budget/parallel": [0, 1.5],
    "/budget/duration": ["soon", 0],
    "/budget/failures": [0],
}
RESULT = {"parameters": {"lr": 0.01}, "value": 0.5}
# Method, path below the experiment, body that is right, model; and wrong values by pointer.
BODIES: list[tuple[str, str, dict[str, Any], type[Body], dict[str, list[Any]]]] = [
    (
        "PATCH",
        "",
        {"note": "x"},
        ChangeBody,
        {
            "/name": ["", "a/b", "@last", 7, "x" * 201],
            "/project": ["", "a/b", 7],
            "/note": [7, "x" * 10_001],
            "/tags": ["a", [1], [""], ["a", "a"], ["x" * 101], ["t"] * 51, ["a\nb"]],
            "/priority": ["high", 1.5, 1_001, -1_001, True],
            "/preemptible": ["maybe", 2, []],
            **BUDGET_WRONG,
        },
    ),
    (
        "PUT",
        "/search-space",
        {"search_space": {"lr": {"_type": "uniform", "_value": [0, 1]}}},
        SearchSpaceBody,
        {"/search_space": [None, [], "lr", {}, {"lr": {"_type": "uniform", "_value": [1, 0]}}]},
    ),
    (
        "POST",
        "/trials",
        {"parameters": {"lr": 0.01}},
        AddTrialBody,
        {
            "/parameters": [None, [], "lr=1", {}, {"lr": 5}, {"lr": "x"}, {"lr": 0.01, "extra": 1}],
            "/outside_space": ["yes", 1],
        },
    ),
    ("POST", "/trials/retry", {}, RetryBody, {"/numbers": [[], [0], ["1"], 3, [1.5], list(range(1, 1_002))]}),
    (
        "POST",
        "/import",
        {"results": [RESULT]},
        ImportBody,
        {
            "/results": [[], "x", [5], [RESULT] * 10_001],
            "/experiment": ["", 5, "x" * 65],
            "/outside_space": ["yes"],
        },
    ),
    (
        "POST",
        "/clone",
        {},
        CloneBody,
        {"/name": ["", "a/b", 5], "/seed": [-1, 2**63, "seven", 1.5], **BUDGET_WRONG},
    ),
]
RESULT_WRONG: dict[str, list[Any]] = {
    "/parameters": [None, [], {}, {"lr": 7}],
    "/value": [None, "good", [1], True, "1.5"],
    "/status": ["running", 5],
    "/step": ["one", 1.5, 2**60],
}
CASES = [
    pytest.param(method, path, body, pointer, value, id=f"{method} {path}{pointer} {index}")
    for method, path, body, _, wrong in BODIES
    for pointer, values in wrong.items()
    for index, value in enumerate(values)
]


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def with_value(body: dict[str, Any], pointer: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(body))
    *path, last = pointer.strip("/").split("/")
    target = copy
    for part in path:
        target = target.setdefault(part, {})
    target[last] = value
    return copy


def test_every_field_of_the_bodies_has_a_wrong_value_here() -> None:
    for _, _, _, model, wrong in BODIES:
        assert {f"/{name}" for name in model.model_fields} == {pointer for pointer in wrong if pointer.count("/") == 1}
    assert {f"/{name}" for name in ResultBody.model_fields} == set(RESULT_WRONG)


@pytest.mark.parametrize(("method", "path", "body", "pointer", "value"), CASES)
def test_a_wrong_value_is_refused_at_its_place(
    api: ApiService, method: str, path: str, body: dict[str, Any], pointer: str, value: Any
) -> None:
    experiment_id = api.create()

    wrong = with_value({} if pointer == "/experiment" else body, pointer, value)
    answer = api.client.request(method, f"/api/v1/experiments/{experiment_id}{path}", json=wrong)

    assert answer.status_code == 422, answer.text
    assert all(error["pointer"].startswith(pointer) for error in answer.json()["errors"]), answer.text
    assert "Value error" not in answer.text
    assert len(api.runner.commands) == 1


@pytest.mark.parametrize(
    ("pointer", "value"), [(pointer, value) for pointer, values in RESULT_WRONG.items() for value in values]
)
def test_a_wrong_result_is_refused_at_its_place(api: ApiService, pointer: str, value: Any) -> None:
    experiment_id = api.create()

    body = {"results": [RESULT, with_value(RESULT, pointer, value)]}
    answer = api.client.post(f"/api/v1/experiments/{experiment_id}/import", json=body)

    assert answer.status_code == 422, answer.text
    assert all(error["pointer"].startswith(f"/results/1{pointer}") for error in answer.json()["errors"]), answer.text
    assert len(api.runner.commands) == 1


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, *_ in BODIES])
def test_an_unknown_field_is_refused(api: ApiService, method: str, path: str) -> None:
    experiment_id = api.create()

    answer = api.client.request(method, f"/api/v1/experiments/{experiment_id}{path}", json={"colour": "red"})

    assert answer.status_code == 422
    assert "/colour" in {error["pointer"] for error in answer.json()["errors"]}


@pytest.mark.parametrize("body", [{}, {"results": [RESULT], "experiment": "abc"}])
def test_an_import_names_results_or_an_experiment(api: ApiService, body: dict[str, Any]) -> None:
    answer = api.client.post(f"/api/v1/experiments/{api.create()}/import", json=body)

    assert answer.status_code == 422
    assert "either" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(("method", "path", "body"), [(m, p, b) for m, p, b, *_ in BODIES])
def test_an_experiment_that_is_not_there_is_not_found(
    api: ApiService, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = api.client.request(method, f"/api/v1/experiments/nobody{path}", json=body)

    assert answer.status_code == 404, answer.text
