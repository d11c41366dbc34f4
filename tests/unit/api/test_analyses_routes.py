from __future__ import annotations

from dataclasses import replace

import pytest

from tests.api_service import a_body, an_api_service
from tuner_service.dispatcher.changes import Changes


@pytest.mark.parametrize("name", ["best", "pareto", "slices", "importance"])
def test_an_analysis_is_computed_again_when_the_outcomes_or_the_space_have_changed(name: str) -> None:
    api = an_api_service()
    experiment_id = api.create()
    place = f"/api/v1/experiments/{experiment_id}"
    tag = api.client.get(f"{place}/{name}").headers["etag"]
    api.client.request("PATCH", place, json={"note": "which changes no outcome"})
    again = api.client.get(f"{place}/{name}", headers={"if-none-match": tag})
    assert (again.status_code, len(api.analyst.asked)) == (304, 1)
    space = {"lr": {"type": "float", "low": 0, "high": 1}}
    assert api.client.request("PUT", f"{place}/search-space", json={"search_space": space}).status_code == 200
    assert api.client.get(f"{place}/{name}").status_code == 200
    experiment = api.queries.experiment(experiment_id)
    assert experiment is not None
    api.store.commit(Changes(experiments={experiment_id: replace(experiment, counts={"succeeded": 1})}))
    assert api.client.get(f"{place}/{name}").status_code == 200
    assert len(api.analyst.asked) == 3


def test_who_computes_analyses_is_ready_when_a_page_is_opened() -> None:
    api = an_api_service()
    api.client.get("/healthz")
    assert api.analyst.prepared == 0
    api.client.get("/")
    assert api.analyst.prepared == 1


@pytest.mark.parametrize("name", ["curves", "timeline", "table"])
def test_what_every_commit_may_change_is_read_again_after_each(name: str) -> None:
    api = an_api_service()
    experiment_id = api.create()
    place = f"/api/v1/experiments/{experiment_id}"
    tag = api.client.get(f"{place}/{name}").headers["etag"]
    assert api.client.get(f"{place}/{name}", headers={"if-none-match": tag}).status_code == 304
    assert len(api.analyst.asked) == 1
    api.client.request("PATCH", place, json={"note": "which is a commit"})
    assert api.client.get(f"{place}/{name}", headers={"if-none-match": tag}).status_code == 304
    assert len(api.analyst.asked) == 2


@pytest.mark.parametrize("name", ["best", "pareto", "slices", "curves", "importance"])
def test_every_analysis_of_a_new_experiment_is_empty_and_of_an_unknown_one_not_found(name: str) -> None:
    api = an_api_service()
    experiment_id = api.create()
    answer = api.client.get(f"/api/v1/experiments/{experiment_id}/{name}")
    assert answer.status_code == 200
    assert answer.json()["id"] == experiment_id
    assert api.client.get(f"/api/v1/experiments/none/{name}").status_code == 404


def test_importance_of_an_unknown_objective_is_refused_naming_those_there_are() -> None:
    api = an_api_service()
    experiment_id = api.create()
    answer = api.client.get(f"/api/v1/experiments/{experiment_id}/importance?metric=other")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/metric"


def test_curves_have_bounds() -> None:
    api = an_api_service()
    experiment_id = api.create()
    assert api.client.get(f"/api/v1/experiments/{experiment_id}/curves?limit=100000").status_code == 422


def test_an_experiment_with_several_objectives_shows_them_as_they_were_written() -> None:
    api = an_api_service()
    objectives = [{"metric": "loss", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}]
    experiment_id = api.create(a_body(objective=objectives, tuner={"name": "nsga2"}))
    view = api.client.get(f"/api/v1/experiments/{experiment_id}").json()
    assert view["objective"] == objectives
    resolved = api.client.post("/api/v1/experiments?dry_run=true", json=a_body(objective=objectives, tuner="tpe"))
    assert resolved.json()["experiment"]["objective"] == objectives


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"tuner": {"name": "cma_es"}}, "/tuner/name"),
        ({"tuner": "evolution"}, "/tuner"),
        ({"trial": {"command": "true", "final": "best"}, "tuner": "tpe"}, "/trial/final"),
    ],
)
def test_what_cannot_go_with_several_objectives_is_refused_at_the_start(changes: dict, pointer: str) -> None:
    api = an_api_service()
    body = a_body(objective=[{"metric": "loss"}, {"metric": "speed", "goal": "maximize"}], **changes)
    answer = api.client.post("/api/v1/experiments", json=body)
    assert answer.status_code == 422
    assert pointer in {error["pointer"] for error in answer.json()["errors"]}
    assert api.runner.commands == []
