"""What a later step could not take is refused at the door; what earlier versions let in can be read all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import NOW, ApiService, a_body, an_api_service
from tests.builders import a_metric, a_trial
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import AlgorithmFaulted
from tuner_service.dispatcher.items import AlgorithmFault, Queue

JSON = {"content-type": "application/json"}
HALF = "\ud800"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize("number", ["1e999", "-1e999", '[1, {"a": 1e400}]'])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/trials", '{"parameters": {"lr": NUMBER}, "outside_space": true}'),
        ("/trials", '{"parameters": {"lr": NUMBER}}'),
        ("/import", '{"results": [{"parameters": {"lr": NUMBER}, "value": 1}], "outside_space": true}'),
        ("/import", '{"results": [{"parameters": {"lr": 0.1}, "value": NUMBER}], "outside_space": true}'),
        ("/search-space", '{"search_space": {"lr": {"_type": "choice", "_value": [NUMBER]}}}'),
    ],
)
def test_a_number_that_overflows_is_refused(api: ApiService, path: str, body: str, number: str) -> None:
    experiment = f"/api/v1/experiments/{api.create()}"
    method = "PUT" if path == "/search-space" else "POST"

    answer = api.client.request(method, experiment + path, content=body.replace("NUMBER", number), headers=JSON)

    assert answer.status_code == 422, answer.text
    assert "larger than any number" in answer.text
    assert len(api.runner.commands) == 1


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**70), 10**400, nested(40), {"a": {"b": [10**30]}}],
    ids=lambda v: f"{v:.9}" if isinstance(v, str) else str(v)[:12],
)
def test_parameters_that_no_tuner_could_take_are_refused_at_their_place(api: ApiService, value: Any) -> None:
    experiment = f"/api/v1/experiments/{api.create()}"

    added = api.client.post(f"{experiment}/trials", json={"parameters": {"lr": value}, "outside_space": True})
    results = [{"parameters": {"lr": value}, "value": 1.0}]
    imported = api.client.post(f"{experiment}/import", json={"results": results, "outside_space": True})

    assert [added.status_code, imported.status_code] == [422, 422]
    assert added.json()["errors"][0]["pointer"].startswith("/parameters/lr")
    assert imported.json()["errors"][0]["pointer"].startswith("/results/0/parameters/lr")
    assert len(api.runner.commands) == 1


def test_the_largest_integers_and_strange_names_are_taken_where_that_is_meant(api: ApiService) -> None:
    experiment = f"/api/v1/experiments/{api.create()}"
    parameters = {"": 1, "a.b": 2**63 - 1, "c\nd": -(2**63 - 1), "e": nested(30)}

    answer = api.client.post(f"{experiment}/trials", json={"parameters": parameters, "outside_space": True})

    assert answer.status_code == 201, answer.text
    assert answer.json()["parameters"] == parameters


@pytest.mark.parametrize("algorithm", [{"name": "tpe"}, {"class": "mine:Tuner"}], ids=str)
def test_arguments_of_an_algorithm_are_checked_likewise(api: ApiService, algorithm: dict[str, Any]) -> None:
    body = a_body(tuner=algorithm | {"args": {"n_startup_trials": 10**400}})

    answer = api.client.post("/api/v1/experiments", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/tuner/args/n_startup_trials"


@pytest.mark.parametrize("text", ["\\ud800", "\\udfff\\ud800", "\\u0000"])
def test_text_that_is_none_is_refused_anywhere(api: ApiService, text: str) -> None:
    experiment = f"/api/v1/experiments/{api.create()}"

    for body in (f'{{"note": "{text}"}}', f'{{"tags": ["{text}"]}}', f'{{"{text}": 1}}'):
        assert api.client.request("PATCH", experiment, content=body, headers=JSON).status_code == 422


def test_rows_that_hold_half_a_surrogate_pair_can_be_read(api: ApiService) -> None:
    experiment_id = api.create()
    changes = Changes()
    fields: dict[str, Any] = {"parameters": {f"lr{HALF}": HALF}, "final": {f"loss{HALF}": 0.5}, "message": HALF}
    changes.trials[experiment_id, 1] = a_trial(experiment_id=experiment_id, metric_names=(HALF,), **fields)
    changes.metrics.append(a_metric(experiment_id=experiment_id, number=1, values={f"loss{HALF}": 0.5}))
    api.store.commit(changes)
    experiment = f"/api/v1/experiments/{experiment_id}"
    trial = f"/api/v1/trials/{experiment_id}/1"
    exports = [
        f"{experiment}/export?format={name}{more}"
        for name in ("csv", "json", "jsonl")
        for more in ("", "&metrics=true")
    ]

    for path in ("/api/v1/experiments", experiment, f"{experiment}/trials", trial, f"{trial}/metrics", *exports):
        answer = api.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "ud800" not in answer.text

    table = api.client.get(f"{experiment}/table")
    assert table.status_code == 200
    assert "ud800" not in table.text.lower()


def test_the_line_at_which_the_tuner_raised_is_skipped_by_a_resume(api: ApiService) -> None:
    experiment_id = api.create()
    experiment = f"/api/v1/experiments/{experiment_id}"
    line = next(
        one["line"]
        for one in api.client.get(f"{experiment}/journal").json()["items"]
        if one["kind"] == "suggestion_requested"
    )
    fault = AlgorithmFaulted(
        at=NOW,
        experiment_id=experiment_id,
        generation=1,
        queue=Queue.TUNER,
        line=line,
        fault=AlgorithmFault.RAISED,
        message="ValueError: \ufffd",
        traceback="",
    )
    api.runner.submit(fault).result()

    other = api.client.post(f"{experiment}/resume", json={"skip_line": line + 100})
    skipped = api.client.post(f"{experiment}/resume", json={"skip_line": line})
    again = api.client.post(f"{experiment}/resume", json={"skip_line": line})

    assert [other.status_code, skipped.status_code, again.status_code] == [409, 200, 409]
    assert f"raised at line {line + 100}" in other.json()["detail"]
    assert skipped.json()["status"] == "running"
    kinds = [entry["kind"] for entry in api.client.get(f"{experiment}/journal").json()["items"]]
    assert kinds.count("line_skipped") == 1
