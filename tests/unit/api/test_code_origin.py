"""Where code comes from, over HTTP: shown with the experiment, and the diff kept."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service

EXPERIMENTS = "/api/v1/experiments"
CODE = {"files": [{"path": "train.py", "content": "print(2)\n"}]}
DIFF = "-print(1)\n+print(2) é\n"
ORIGIN: dict[str, Any] = {"commit": "a" * 40, "branch": "main", "dirty": True, "changes": DIFF}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def body_with(**trial: Any) -> dict[str, Any]:
    body = a_body()
    return body | {"trial": {**body["trial"], "code": CODE, **trial}}


def test_the_commit_is_shown_and_the_diff_is_an_attachment(api: ApiService) -> None:
    view = api.client.post(EXPERIMENTS, json=body_with(code_origin=ORIGIN)).json()

    digest = "sha256:" + hashlib.sha256(DIFF.encode()).hexdigest()
    assert view["trial"]["code_origin"] == ORIGIN | {"ref": None, "changes": digest}
    answer = api.client.get(f"{EXPERIMENTS}/{view['id']}/code-changes")
    assert (answer.status_code, answer.text) == (200, DIFF)
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_without_changes_there_is_no_diff(api: ApiService) -> None:
    clean = api.client.post(EXPERIMENTS, json=body_with(code_origin=ORIGIN | {"dirty": False, "changes": None})).json()
    plain = api.client.post(EXPERIMENTS, json=body_with()).json()

    for view in (clean, plain):
        assert api.client.get(f"{EXPERIMENTS}/{view['id']}/code-changes").status_code == 404


def test_what_is_shown_is_taken_again_as_long_as_the_service_has_the_diff(api: ApiService) -> None:
    shown = api.client.post(EXPERIMENTS, json=body_with(code_origin=ORIGIN)).json()["trial"]

    again = api.client.post(EXPERIMENTS, json=body_with(code=shown["code"], code_origin=shown["code_origin"]))
    unknown = body_with(code_origin=shown["code_origin"] | {"changes": "sha256:" + "0" * 64})

    assert again.json()["trial"]["code_origin"] == shown["code_origin"]
    answer = api.client.post(EXPERIMENTS, json=unknown)
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/trial/code_origin/changes"]


def test_refuse_takes_only_code_that_is_known_to_be_as_committed(api: ApiService) -> None:
    clean = ORIGIN | {"dirty": False, "changes": None}

    assert api.client.post(EXPERIMENTS, json=body_with(code_changes="refuse", code_origin=clean)).status_code == 201
    for origin in (ORIGIN, None):
        answer = api.client.post(EXPERIMENTS, json=body_with(code_changes="refuse", code_origin=origin))
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/trial/code_changes"]


def test_a_resume_with_new_code_says_where_that_comes_from(api: ApiService) -> None:
    experiment_id = api.client.post(EXPERIMENTS, json=body_with(code_origin=ORIGIN)).json()["id"]
    new = {"code": {"files": [{"path": "train.py", "content": "3"}]}, "code_origin": {"commit": "b" * 40}}

    view = api.client.post(f"{EXPERIMENTS}/{experiment_id}/resume", json=new).json()

    assert view["trial"]["code_origin"]["commit"] == "b" * 40
    assert view["trial"]["code_origin"]["changes"] is None
