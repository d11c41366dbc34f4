"""What people change while a search goes on, over HTTP."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.builders import START, a_metric, a_trial
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import ExperimentCreated, OutcomesImported
from tuner_service.domain.trial import TrialOutcome, TrialStatus
from tuner_service.service.live_changes import LiveChanges
from tuner_service.service.views import moment

NARROW = {"lr": {"_type": "uniform", "_value": [0.001, 0.002]}}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


@pytest.fixture
def path(api: ApiService) -> str:
    return f"/api/v1/experiments/{api.create()}"


@pytest.mark.parametrize(
    ("tuner", "space"),
    [
        ("grid", {f"x{n}": {"type": "float", "low": 0, "high": 1} for n in range(7)} | {"constraints": ["x0 <= x1"]}),
        ("quasi_random", {f"p{n}": {"type": "permutation", "choices": list(range(100))} for n in range(213)}),
    ],
)
def test_a_space_that_the_tuner_cannot_search_fails_no_running_experiment(
    api: ApiService, tuner: str, space: dict[str, Any]
) -> None:
    path = f"/api/v1/experiments/{api.create(a_body(tuner=tuner))}"

    answer = api.client.request("PUT", f"{path}/search-space", json={"search_space": space})

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["pointer"], error["detail"][: len(tuner) + 25]) == (
        "/search_space",
        f"{tuner} cannot search this space",
    )
    assert len(api.runner.commands) == 1  # its creation
    assert api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW}).status_code == 200


def test_a_name_of_several_lines_is_refused_at_its_place(api: ApiService, path: str) -> None:
    nested = {"_type": "choice", "_value": [{"_name": "conv", "kernel\x1b[0m": {"type": "int", "low": 1, "high": 3}}]}

    answer = api.client.request("PUT", f"{path}/search-space", json={"search_space": {"layer": nested}})

    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/search_space/layer/conv/kernel\x1b[0m"
    assert error["detail"].startswith("has a line break or a control character in its name")


def with_trials(api: ApiService, path: str, *trials: dict[str, Any]) -> None:
    """Rows of trials that ended, numbered from 1."""
    experiment_id = path.rpartition("/")[2]
    changes = Changes()
    for number, fields in enumerate(trials, start=1):
        defaults = {"experiment_id": experiment_id, "number": number, "parameters": {"lr": 0.01}, "attempts": 1}
        changes.trials[experiment_id, number] = a_trial(**(defaults | fields))
    api.store.commit(changes)


def last_import(api: ApiService) -> list[TrialOutcome]:
    command = api.runner.commands[-1]
    assert isinstance(command, OutcomesImported)
    return [outcome for line in command.lines for outcome in line.outcomes]


# ── limits and labels ───────────────────────────────────────────────────────────────────────────
def test_limits_and_labels_change_while_it_runs(api: ApiService, path: str) -> None:
    body = {"name": "wine", "note": "see the log", "tags": ["a", "b"], "priority": 3, "budget": {"parallel": 5}}

    changed = api.client.request("PATCH", path, json=body).json()

    assert {name: changed[name] for name in ("name", "note", "tags", "priority")} == {
        name: body[name] for name in ("name", "note", "tags", "priority")
    }
    assert (changed["budget"]["parallel"], changed["budget"]["trials"]) == (5, 4)
    assert changed == api.client.get(path).json()


def test_a_change_of_nothing_is_refused(api: ApiService, path: str) -> None:
    assert api.client.request("PATCH", path, json={}).status_code == 422


def test_a_change_of_what_was_read_before_another_change_is_refused_with_412(api: ApiService, path: str) -> None:
    tag = api.client.get(path).headers["etag"]

    first = api.client.request("PATCH", path, json={"note": "mine"}, headers={"if-match": tag})
    second = api.client.request("PATCH", path, json={"note": "yours"}, headers={"if-match": tag})
    third = api.client.request("PATCH", path, json={"note": "last"}, headers={"if-match": first.headers["etag"]})

    assert [first.status_code, second.status_code, third.status_code] == [200, 412, 200]
    assert second.headers["content-type"] == "application/problem+json"
    assert api.client.get(path).json()["note"] == "last"


def test_any_state_matches_a_star(api: ApiService, path: str) -> None:
    assert api.client.request("PATCH", path, json={"note": "x"}, headers={"if-match": "*"}).status_code == 200


# ── the search space ────────────────────────────────────────────────────────────────────────────
def test_a_changed_space_is_a_new_revision_and_the_old_one_is_kept(api: ApiService, path: str) -> None:
    before = api.client.get(f"{path}/search-space").json()

    changed = api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW}).json()

    assert (before["revision"], changed["revision"], changed["search_space"]) == (1, 2, NARROW)
    assert api.client.get(f"{path}/search-space").json() == changed
    assert api.client.get(f"{path}/search-space/revisions").json() == {"items": [before, changed], "next": None}
    assert api.client.get(path).json()["search_space"] == NARROW


@pytest.mark.parametrize(("first", "second"), [([0, 1], [False, True]), ([1, 2], [1.0, 2.0])])
def test_a_space_that_differs_in_types_alone_is_a_new_revision(
    api: ApiService, path: str, first: list[Any], second: list[Any]
) -> None:
    for choices in (first, second):
        space = {"lr": {"type": "categorical", "choices": choices}}
        changed = api.client.request("PUT", f"{path}/search-space", json={"search_space": space}).json()

    assert changed["revision"] == 3
    assert repr(changed["search_space"]["lr"]["choices"]) == repr(second)


def test_the_same_space_again_makes_no_revision(api: ApiService, path: str) -> None:
    api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW})

    again = api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW}).json()

    assert again["revision"] == 2


def test_revisions_come_in_pages(api: ApiService, path: str) -> None:
    for high in (0.2, 0.3):
        space = {"lr": {"_type": "uniform", "_value": [0, high]}}
        api.client.request("PUT", f"{path}/search-space", json={"search_space": space})

    first = api.client.get(f"{path}/search-space/revisions?limit=2").json()
    rest = api.client.get(f"{path}/search-space/revisions?limit=2&cursor={first['next']}").json()

    assert [r["revision"] for r in first["items"] + rest["items"]] == [1, 2, 3]
    assert rest["next"] is None


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
def test_an_added_trial_is_answered_with_its_number_and_place(api: ApiService, path: str) -> None:
    answer = api.client.post(f"{path}/trials", json={"parameters": {"lr": 0.01}})

    trial = answer.json()
    assert answer.status_code == 201
    assert (trial["parameters"], trial["source"], trial["retry_of"]) == ({"lr": 0.01}, "custom", None)
    assert api.client.get(answer.headers["location"]).json()["id"] == trial["id"]


def test_parameters_are_checked_against_the_newest_space(api: ApiService, path: str) -> None:
    api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW})

    refused = api.client.post(f"{path}/trials", json={"parameters": {"lr": 0.01, "lrr": 1}})
    meant = api.client.post(f"{path}/trials", json={"parameters": {"lr": 0.01}, "outside_space": True})

    assert {error["pointer"] for error in refused.json()["errors"]} == {"/parameters/lr", "/parameters/lrr"}
    assert "did you mean 'lr'" in refused.text
    assert meant.status_code == 201


def test_a_missing_parameter_is_named(api: ApiService, path: str) -> None:
    answer = api.client.post(f"{path}/trials", json={"parameters": {}})

    assert answer.json()["errors"] == [{"pointer": "/parameters/lr", "detail": "is missing"}]


def test_faults_of_a_nested_choice_stand_at_their_places(api: ApiService) -> None:
    inner = {"_type": "choice", "_value": [{"_name": "conv", "kernel": {"_type": "randint", "_value": [1, 5]}}]}
    path = f"/api/v1/experiments/{api.create(a_body(search_space={'layer': inner}))}"

    answer = api.client.post(f"{path}/trials", json={"parameters": {"layer": {"_name": "conv", "kernel": 9}}})

    assert [error["pointer"] for error in answer.json()["errors"]] == ["/parameters/layer/kernel"]


def with_failed(api: ApiService, path: str, *, count: int) -> list[int]:
    """The numbers of so many trials that failed, before one that waits."""
    experiment_id = path.rpartition("/")[2]
    for number in range(1, count + 2):
        api.client.post(f"{path}/trials", json={"parameters": {"lr": number / 100}})
    failed = [trial["number"] for trial in api.client.get(f"{path}/trials").json()["items"][:count]]
    for number in failed:
        api.client.post(f"/api/v1/trials/{experiment_id}/{number}/stop")
        ended = api.queries.trial(experiment_id, number)
        assert ended is not None
        changes = Changes()
        changes.trials[experiment_id, number] = replace(ended, status=TrialStatus.FAILED)
        api.store.commit(changes)
    return failed


def test_failed_trials_are_tried_again_once_each(api: ApiService, path: str) -> None:
    failed = with_failed(api, path, count=2)

    first = api.client.post(f"{path}/trials/retry", json={})
    second = api.client.post(f"{path}/trials/retry", json={})

    retried = first.json()["items"]
    assert first.status_code == 201
    assert [trial["retry_of"] for trial in retried] == failed
    assert [trial["parameters"]["lr"] for trial in retried] == [0.01, 0.02]
    assert {trial["source"] for trial in retried} == {"retry"}
    assert second.json()["items"] == []


def test_failed_trials_are_tried_again_once_where_two_ask_for_it_at_once(api: ApiService, path: str) -> None:
    experiment_id = path.rpartition("/")[2]
    with_failed(api, path, count=3)
    changes = LiveChanges(experiments=api.services.experiments)

    async def both() -> list[list[int]]:
        return await asyncio.gather(*(changes.retry_failed(experiment_id, None) for _ in range(2)))

    assert sorted(map(len, asyncio.run(both()))) == [0, 3]


def test_a_trial_that_has_not_ended_is_not_tried_again(api: ApiService, path: str) -> None:
    number = api.client.post(f"{path}/trials", json={"parameters": {"lr": 0.01}}).json()["number"]

    one = api.client.post(f"/api/v1/trials/{path.rpartition('/')[2]}/{number}/retry")
    several = api.client.post(f"{path}/trials/retry", json={"numbers": [number]})
    nobody = api.client.post(f"{path}/trials/retry", json={"numbers": [99]})

    assert [one.status_code, several.status_code, nobody.status_code] == [409, 409, 404]


# ── results from elsewhere ──────────────────────────────────────────────────────────────────────
def test_imported_results_reach_the_tuners_queue(api: ApiService, path: str) -> None:
    results = [
        {"parameters": {"lr": 0.01}, "value": 0.5},
        {"parameters": {"lr": 0.02}, "value": "NaN"},
        {"parameters": {"lr": 0.03}, "status": "failed"},
        {"parameters": {"lr": 0.04}, "status": "early_stopped", "value": 0.3, "step": 7},
    ]

    answer = api.client.post(f"{path}/import", json={"results": results})

    outcomes = last_import(api)
    assert answer.json() == {"imported": 4, "skipped": 0}
    assert [(o.number, o.source) for o in outcomes] == [(0, "imported")] * 4
    assert (outcomes[0].value, outcomes[2].value, outcomes[3].step) == (0.5, None, 7)
    assert math.isnan(outcomes[1].value or 0.0)
    assert outcomes[2].status is TrialStatus.FAILED


def test_results_outside_the_space_are_refused_unless_they_are_meant(api: ApiService, path: str) -> None:
    body: dict[str, Any] = {"results": [{"parameters": {"lr": 7.0}, "value": 0.5}]}

    refused = api.client.post(f"{path}/import", json=body)
    meant = api.client.post(f"{path}/import", json=body | {"outside_space": True})

    assert refused.json()["errors"][0]["pointer"] == "/results/0/parameters/lr"
    assert meant.json()["imported"] == 1


def test_what_an_earlier_experiment_found_is_imported_as_far_as_it_fits(api: ApiService, path: str) -> None:
    earlier = f"/api/v1/experiments/{api.create(a_body(name='earlier'))}"
    with_trials(
        api,
        earlier,
        {"status": TrialStatus.SUCCEEDED, "value": 0.9},
        {"status": TrialStatus.SUCCEEDED, "value": 0.8, "parameters": {"lr": 7.0}},
        {"status": TrialStatus.FAILED, "parameters": {"lr": 0.02}},
        {"status": TrialStatus.CANCELED, "parameters": {"lr": 0.03}},
        {"status": TrialStatus.EARLY_STOPPED, "value": 0.1, "last_step": 3, "parameters": {"lr": 0.04}},
    )

    answer = api.client.post(f"{path}/import", json={"experiment": earlier.rpartition("/")[2]})

    assert answer.json() == {"imported": 3, "skipped": 1}
    assert [(o.status.value, o.value, o.step) for o in last_import(api)] == [
        ("succeeded", 0.9, None),
        ("failed", None, None),
        ("early_stopped", 0.1, 3),
    ]


def test_an_experiment_with_another_objective_or_none_at_all_is_not_imported(api: ApiService, path: str) -> None:
    other = api.create(a_body(objective={"metric": "loss", "goal": "minimize"}))

    itself = path.rpartition("/")[2]
    for source, said in ((other, "another objective"), ("nobody", "no experiment"), (itself, "the experiment itself")):
        answer = api.client.post(f"{path}/import", json={"experiment": source})
        assert answer.status_code == 422
        assert said in answer.json()["errors"][0]["detail"]


# ── priority ────────────────────────────────────────────────────────────────────────────────────
def test_a_priority_of_the_file_is_shown_and_stored_and_a_clone_has_the_one_of_now(api: ApiService) -> None:
    file = a_body(priority=3)
    dry = api.client.post("/api/v1/experiments?dry_run=true", json=file).json()["experiment"]
    path = f"/api/v1/experiments/{api.create(file)}"
    plain = f"/api/v1/experiments/{api.create()}"

    cloned = api.client.post(f"{path}/clone", json={}).json()
    api.client.request("PATCH", path, json={"priority": -5})
    later = api.client.post(f"{path}/clone", json={}).json()

    assert (dry["priority"], api.client.get(plain).json()["priority"]) == (3, 0)
    assert (cloned["priority"], later["priority"]) == (3, -5)
    row = api.queries.experiment(cloned["id"])
    assert row is not None
    assert row.priority == 3


# ── clones ──────────────────────────────────────────────────────────────────────────────────────
def test_a_clone_has_the_same_spec_and_newest_space_and_another_seed(api: ApiService, path: str) -> None:
    api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW})

    answer = api.client.post(f"{path}/clone", json={"budget": {"trials": 9}})

    cloned, original = answer.json(), api.client.get(path).json()
    assert answer.status_code == 201
    assert answer.headers["location"].endswith(cloned["id"])
    assert cloned["search_space"] == NARROW
    assert (cloned["budget"]["trials"], cloned["budget"]["parallel"]) == (9, original["budget"]["parallel"])
    assert cloned["seed"] != original["seed"]
    assert all(cloned[name] == original[name] for name in ("name", "tuner", "trial", "objective"))


def test_null_takes_a_bound_of_the_budget_away_and_what_is_left_out_stays(api: ApiService, path: str) -> None:
    def budget(answer: Any) -> tuple[int, Any, Any]:
        found = answer.json()["budget"] if answer.status_code in {200, 201} else {}
        return answer.status_code, found.get("trials"), found.get("duration")

    assert budget(api.client.request("PATCH", path, json={"budget": {"duration": "1m"}})) == (200, 4, 60.0)
    assert budget(api.client.request("PATCH", path, json={"budget": {"trials": None}})) == (200, None, 60.0)
    assert budget(api.client.post(f"{path}/clone", json={"budget": {"trials": 3, "duration": None}})) == (201, 3, None)
    assert budget(api.client.request("PATCH", path, json={"budget": {"duration": None}})) == (409, None, None)
    refused = api.client.post(f"{path}/clone", json={"budget": {"duration": None}})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/budget")


def test_a_clone_takes_a_name_and_a_seed_and_is_made_once_for_a_key(api: ApiService, path: str) -> None:
    body = {"name": "again", "seed": 11}

    answers = [api.client.post(f"{path}/clone", json=body, headers={"idempotency-key": "k"}) for _ in range(2)]
    other = api.client.post(f"{path}/clone", json={"seed": 12}, headers={"idempotency-key": "k"})

    assert (answers[0].json()["name"], answers[0].json()["seed"]) == ("again", 11)
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert other.status_code == 422
    assert sum(isinstance(command, ExperimentCreated) for command in api.runner.commands) == 2


def test_a_deterministic_clone_takes_no_duration(api: ApiService) -> None:
    path = f"/api/v1/experiments/{api.create(a_body(deterministic=True))}"

    answer = api.client.post(f"{path}/clone", json={"budget": {"duration": "1h"}})

    assert answer.json()["errors"][0]["pointer"] == "/budget/duration"


def test_a_clone_of_a_batch_has_what_of_its_list_lies_in_the_newest_space(api: ApiService) -> None:
    listed = [{"lr": lr} for lr in (0.0015, 0.05, 0.002)]
    path = f"/api/v1/experiments/{api.create(a_body(tuner={'name': 'batch', 'args': {'parameters': listed}}))}"
    api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW})

    cloned = api.client.post(f"{path}/clone").json()

    assert cloned["tuner"]["args"]["parameters"] == [listed[0], listed[2]]
    assert api.client.get(path).json()["tuner"]["args"]["parameters"] == listed


def test_a_batch_of_whose_list_nothing_lies_in_the_newest_space_has_no_clone(api: ApiService) -> None:
    tuner = {"name": "batch", "args": {"parameters": [{"lr": 0.05}]}}
    path = f"/api/v1/experiments/{api.create(a_body(tuner=tuner))}"
    api.client.request("PUT", f"{path}/search-space", json={"search_space": NARROW})

    answer = api.client.post(f"{path}/clone")

    assert answer.status_code == 422
    assert "batch lists" in answer.json()["errors"][0]["detail"]


# ── export ──────────────────────────────────────────────────────────────────────────────────────
def test_trials_are_exported_as_a_table_with_a_column_for_each_parameter(api: ApiService, path: str) -> None:
    nested = {"lr": 0.5, "layer": {"_name": "conv", "kernel": 3}, "mode": "7"}
    with_trials(
        api,
        path,
        {"status": TrialStatus.SUCCEEDED, "value": 0.9, "final": {"accuracy": 0.9}, "parameters": nested},
        {"status": TrialStatus.FAILED, "message": 'said "no",\nthen left'},
    )

    answer = api.client.get(f"{path}/export?format=csv")

    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-disposition"].endswith('.csv"')
    assert rows[0]["parameters.layer._name"] == "conv"
    assert (rows[0]["parameters.layer.kernel"], rows[0]["parameters.mode"], rows[0]["final.accuracy"]) == (
        "3",
        '"7"',
        "0.9",
    )
    assert (rows[1]["message"], rows[1]["parameters.lr"], rows[1]["value"]) == ('said "no",\nthen left', "0.01", "")


def test_exported_objects_are_those_of_the_list(api: ApiService, path: str) -> None:
    going = {"status": TrialStatus.RUNNING, "started_at": START}
    with_trials(api, path, {"status": TrialStatus.SUCCEEDED, "value": math.inf}, {"status": TrialStatus.FAILED}, going)
    api.store.commit(Changes(metrics=[a_metric(experiment_id=path.rpartition("/")[2], number=3, at=START + 5)]))
    listed = api.client.get(f"{path}/trials").json()["items"]
    assert listed[2]["reported_at"] == moment(START + 5)

    as_json = api.client.get(f"{path}/export?format=json").json()
    as_lines = [json.loads(line) for line in api.client.get(f"{path}/export?format=jsonl").text.splitlines()]

    assert as_json == as_lines == listed


def test_metrics_are_exported_one_a_row_over_all_trials(api: ApiService, path: str) -> None:
    experiment_id = path.rpartition("/")[2]
    with_trials(api, path, {}, {})
    changes = Changes()
    for number in (1, 2):
        for step in (1, None):
            changes.metrics.append(
                a_metric(
                    experiment_id=experiment_id,
                    number=number,
                    step=step,
                    sequence=step or 2,
                    values={"accuracy": 0.5, "loss": math.nan},
                )
            )
    api.store.commit(changes)

    rows = list(csv.DictReader(io.StringIO(api.client.get(f"{path}/export?metrics=true").text)))

    assert [(r["number"], r["step"], r["metric"], r["value"]) for r in rows] == [
        (number, step, metric, value)
        for number in ("1", "2")
        for step in ("1", "")
        for metric, value in (("accuracy", "0.5"), ("loss", "NaN"))
    ]


def test_an_experiment_without_trials_is_exported_as_nothing(api: ApiService, path: str) -> None:
    assert api.client.get(f"{path}/export?format=json").json() == []
    assert api.client.get(f"{path}/export?format=jsonl").text == ""
    assert len(api.client.get(f"{path}/export").text.splitlines()) == 1
    assert api.client.get(f"{path}/export?format=xlsx").status_code == 422
    assert api.client.get("/api/v1/experiments/nobody/export").status_code == 404
