"""A file without a search space, and the labels by which experiments are found, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service

EXPERIMENTS = "/api/v1/experiments"
TRAINING: dict[str, Any] = {"name": "once", "trial": {"command": "python train.py"}}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def faults_of(api: ApiService, body: dict[str, Any]) -> dict[str, str]:
    answer = api.client.post(EXPERIMENTS, json=body)
    assert answer.status_code == 422, answer.text
    return {error["pointer"]: error["detail"] for error in answer.json()["errors"]}


def test_a_file_without_a_search_space_is_one_trial_without_an_objective_to_reach(api: ApiService) -> None:
    view = api.client.post(EXPERIMENTS, json=TRAINING).json()

    assert (view["status"], view["budget"]["trials"], view["search_space"]) == ("running", 1, {})
    assert view["objective"] == {"metric": "default", "goal": "minimize", "optional": True}
    assert (view["tuner"]["name"], view["assessor"], view["advisor"]) == ("random", None, None)


def test_what_a_training_resolves_to_is_taken_again_and_resolves_to_the_same(api: ApiService) -> None:
    resolved = api.client.post(EXPERIMENTS, params={"dry_run": True}, json=TRAINING).json()
    again = api.client.post(EXPERIMENTS, params={"dry_run": True}, json=resolved["experiment"])

    assert again.status_code == 200, again.text
    assert again.json() == resolved
    assert (resolved["space_size"], resolved["samples"][0]) == (1, {})


@pytest.mark.parametrize(
    ("pointer", "field"),
    [
        ("/tuner", {"tuner": "tpe"}),
        ("/tuner", {"tuner": {"class": "mine:Tuner"}}),
        ("/assessor", {"assessor": "median_stop"}),
        ("/advisor", {"advisor": {"name": "hyperband", "args": {"max_step": 9}}}),
        ("/warm_start", {"warm_start": ["abc12"]}),
        ("/budget/trials", {"budget": {"trials": 5}}),
    ],
)
def test_a_training_refuses_what_only_a_search_has(api: ApiService, pointer: str, field: dict[str, Any]) -> None:
    assert "search_space" in faults_of(api, TRAINING | field)[pointer]


def test_a_search_needs_an_objective_and_a_budget(api: ApiService) -> None:
    body = a_body()
    del body["objective"], body["budget"]

    assert set(faults_of(api, body)) == {"/objective", "/budget"}


def test_a_training_is_not_turned_into_a_search(api: ApiService) -> None:
    training = api.client.post(EXPERIMENTS, json=TRAINING).json()["id"]
    space = {"search_space": {"lr": {"type": "float", "low": 0, "high": 1}}}

    assert api.client.request("PUT", f"{EXPERIMENTS}/{training}/search-space", json=space).status_code == 409
    search = api.client.post(EXPERIMENTS, json=a_body()).json()["id"]
    assert (
        api.client.request("PUT", f"{EXPERIMENTS}/{search}/search-space", json={"search_space": {}}).status_code == 422
    )


def test_experiments_are_found_by_project_tags_status_and_a_part_of_their_name(api: ApiService) -> None:
    def start(name: str, **labels: Any) -> str:
        view = api.client.post(EXPERIMENTS, json=TRAINING | {"name": name} | labels).json()
        return str(view["id"])

    def found(**query: Any) -> set[str]:
        return {view["name"] for view in api.client.get(EXPERIMENTS, params=query).json()["items"]}

    start("Digits", project="vision", tags=["base", "old"], note="as it was")
    start("digits-2", project="vision", tags=["base"])
    stopped = start("speech")
    api.client.post(f"{EXPERIMENTS}/{stopped}/pause", json={})

    assert found(project="vision") == {"Digits", "digits-2"}
    assert found(project="default") == {"speech"}
    assert found(project="none of these") == set()
    assert found(tag=["base", "old"]) == {"Digits"}
    assert found(name="DIGITS") == {"Digits", "digits-2"}
    assert found(status="paused") == {"speech"}
    assert found(project="vision", tag="base", status="running", name="-2") == {"digits-2"}


def test_labels_are_there_from_the_start_and_can_be_changed(api: ApiService) -> None:
    labels = {"project": "vision", "note": "the first", "tags": ["base"]}
    view = api.client.post(EXPERIMENTS, json=TRAINING | labels).json()
    assert {name: view[name] for name in labels} == labels

    changed = api.client.request("PATCH", f"{EXPERIMENTS}/{view['id']}", json={"project": "speech"}).json()

    assert (changed["project"], changed["note"]) == ("speech", "the first")
    clone = api.client.post(f"{EXPERIMENTS}/{view['id']}/clone", json={}).json()
    assert (clone["project"], clone["tags"], clone["note"]) == ("speech", ["base"], "")


def test_fixed_parameters_are_a_space_of_constants_with_one_trial(api: ApiService) -> None:
    space = {"lr": {"type": "const", "value": 0.1}, "depth": {"type": "const", "value": 3}}
    body = a_body() | {"search_space": space, "budget": {"trials": 1}}

    resolved = api.client.post(EXPERIMENTS, params={"dry_run": True}, json=body).json()

    assert (resolved["space_size"], resolved["samples"][0]) == (1, {"lr": 0.1, "depth": 3})
