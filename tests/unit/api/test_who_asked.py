"""Who asked for a change stands in the journal's lines that it writes, and in the log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import ApiService, an_api_service
from tests.unit.api.test_signing_in import PAGE, signed_in
from tuner_service.service.access import Role

RUNNING = {"trials": 4, "parallel": 2}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def lines(api: ApiService, experiment_id: str) -> list[tuple[str, Any]]:
    items = api.client.get(f"/api/v1/experiments/{experiment_id}/journal").json()["items"]
    return [(line["kind"], line["payload"].get("by")) for line in items]


def test_each_change_names_the_token_of_who_asked_and_what_follows_names_nobody(api: ApiService) -> None:
    secret, _ = api.services.tokens.add("ann", Role.OPERATOR, lasts_s=None, by="home")
    ann, experiment_id = api.as_role(secret), api.create()
    path = f"/api/v1/experiments/{experiment_id}"

    assert ann.post(f"{path}/pause").status_code == 200
    assert ann.request("PATCH", path, json={"note": "of ann", "budget": {"parallel": 1}}).status_code == 200
    assert api.client.post(f"{path}/resume").status_code == 200
    assert ann.post(f"{path}/trials", json={"parameters": {"lr": 0.01}}).status_code == 201
    assert ann.post(f"{path}/stop").status_code == 200

    found = lines(api, experiment_id)
    asked = [(kind, by) for kind, by in found if kind in {"experiment_moved", "experiment_changed", "trial_added"}]
    names = [by for _, by in asked]
    assert names[:2] == ["home", "ann"]
    assert [name for name in names if name][-1] == "ann"
    assert {"home", "ann"} == set(names) - {None}
    assert all(by is None for kind, by in found if kind == "suggestion_requested")


def test_a_change_by_a_browser_names_its_session_too(api: ApiService) -> None:
    experiment_id, cookie = api.create(), signed_in(api)
    headers = {"cookie": cookie, "origin": "http://localhost", **PAGE}

    answer = api.as_role(None).post(f"/api/v1/experiments/{experiment_id}/pause", headers=headers)

    assert answer.status_code == 200, answer.text
    session_id = api.store.sessions()[0].id
    assert lines(api, experiment_id)[-1] == ("experiment_moved", f"home (session {session_id})")


def test_what_leaves_no_journal_stands_in_the_log(api: ApiService, caplog: pytest.LogCaptureFixture) -> None:
    experiment_id = api.create()
    caplog.set_level("INFO")
    api.client.post(f"/api/v1/experiments/{experiment_id}/stop")
    api.client.delete(f"/api/v1/experiments/{experiment_id}")
    api.client.request("PUT", "/api/v1/quota-groups/small", json={"gpus": 1})

    said = [(r.change, r.about, r.by) for r in caplog.records if r.message == "change_asked_for"]  # type: ignore[attr-defined]  # of extra
    assert ("ExperimentDeleted", experiment_id, "home") in said
    assert ("QuotaGroupSet", "", "home") in said


def test_the_name_of_one_sender_is_not_left_for_the_next(api: ApiService) -> None:
    secret, _ = api.services.tokens.add("ann", Role.OPERATOR, lasts_s=None, by="home")
    first = api.as_role(secret).post("/api/v1/experiments", json=_body("one")).json()["id"]
    second = api.create(_body("two"))

    assert lines(api, first)[0][1] == "ann"
    assert lines(api, second)[0][1] == "home"


def _body(name: str) -> dict[str, Any]:
    from tests.api_service import a_body

    return a_body(name=name)
