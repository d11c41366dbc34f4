"""Experiment files whose search space the script defines by running."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service

PLACE = "/api/v1/experiments"
BY_RUN = {"command": "python train.py", "define_by_run": True}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def faults(api: ApiService, **fields: Any) -> dict[str, str]:
    answer = api.client.post(PLACE, json=a_body(trial=BY_RUN, **fields))
    assert answer.status_code == 422
    return {error["pointer"]: error["detail"] for error in answer.json()["errors"]}


@pytest.mark.parametrize("space", [{}, None, {"lr": {"type": "float", "low": 0, "high": 1}}])
def test_it_is_a_search_with_whatever_space_it_begins(api: ApiService, space: Any) -> None:
    body = a_body(trial=BY_RUN, search_space=space)
    for field in ("tuner", "assessor", "advisor"):
        body.pop(field, None)
    created = api.client.post(PLACE, json=body)

    assert created.status_code == 201, created.json()
    shown = created.json()
    assert shown["trial"]["define_by_run"] is True
    assert shown["search_space"] == (space or {})
    assert shown["tuner"]["name"] == "auto"
    assert shown["advisor"] is None  # it would give a trial one set of parameters


def test_it_needs_what_a_search_needs(api: ApiService) -> None:
    found = faults(api, search_space={}, budget={}, objective=None)

    assert "/objective" in found
    assert "/budget" in found


def test_an_advisor_and_determinism_are_refused(api: ApiService) -> None:
    body = a_body(trial=BY_RUN, advisor="hyperband", deterministic=True)
    body.pop("tuner", None)
    body.pop("assessor", None)
    answer = api.client.post(PLACE, json=body)
    found = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}

    assert "one set of parameters" in found["/advisor"]
    assert "in the order in which trials ask" in found["/trial/define_by_run"]


def test_a_person_may_give_it_its_first_space(api: ApiService) -> None:
    place = f"{PLACE}/{api.client.post(PLACE, json=a_body(trial=BY_RUN, search_space={})).json()['id']}/search-space"
    space = {"lr": {"type": "float", "low": 0.0, "high": 1.0}}

    assert api.client.request("PUT", place, json={"search_space": space}).status_code == 200
    assert api.client.get(place).json()["search_space"] == space
