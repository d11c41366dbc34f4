from __future__ import annotations

import pytest

from tests.api_service import a_body, an_api_service


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
