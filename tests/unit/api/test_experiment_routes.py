"""Experiments over HTTP, on the real dispatcher and a store in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.builders import a_trial, an_attempt
from trials.wire.records import ProcessRecord
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import BudgetRaise, ExperimentCreated, ExperimentResumed
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentStatus
from tuner_service.domain.resources import Holding
from tuner_service.domain.trial import Attempt, Trial, TrialStatus

EXPERIMENTS = "/api/v1/experiments"
SHOWN_FIELDS = [
    "id",
    "name",
    "status",
    "reason",
    "objective",
    "budget",
    "counts",
    "best",
    "created_at",
    "started_at",
    "ended_at",
    "running_s",
]


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def put(api: ApiService, *rows: Experiment | Trial | Attempt) -> None:
    """Store rows as the dispatcher would have."""
    changes = Changes()
    for row in rows:
        match row:
            case Experiment():
                changes.experiments[row.id] = row
            case Trial():
                changes.trials[row.experiment_id, row.number] = row
            case Attempt():
                changes.attempts[row.key] = row
    api.store.commit(changes)


def stored(api: ApiService, experiment_id: str) -> Experiment:
    experiment = api.queries.experiment(experiment_id)
    assert experiment is not None
    return experiment


def test_creating_an_experiment_answers_201_with_its_place_and_itself(api: ApiService) -> None:
    answer = api.client.post(EXPERIMENTS, json=a_body())

    assert answer.status_code == 201
    assert answer.headers["location"] == f"{EXPERIMENTS}/{answer.json()['id']}"
    assert answer.json()["status"] == "running"
    assert api.client.get(answer.headers["location"]).json() == answer.json()


def test_an_experiment_has_the_fields_that_programs_rely_on(api: ApiService) -> None:
    view = api.client.get(f"{EXPERIMENTS}/{api.create()}").json()

    assert list(view)[: len(SHOWN_FIELDS) + 1] == [*SHOWN_FIELDS[:4], "message", *SHOWN_FIELDS[4:]]
    assert view["budget"] == {"trials": 4, "parallel": 2, "duration": None, "failures": 10}
    assert view["created_at"] == "2025-06-15T15:06:40.000Z"


def test_a_dry_run_resolves_the_file_and_stores_nothing(api: ApiService) -> None:
    body = a_body(budget={"trials": 20})
    del body["tuner"]
    answer = api.client.post(f"{EXPERIMENTS}?dry_run=true", json=body)

    assert answer.status_code == 200
    assert answer.json()["experiment"]["tuner"] is None
    assert answer.json()["experiment"]["advisor"] == {"name": "auto", "args": {}}
    assert answer.json()["space_size"] == "Infinity"
    assert len(answer.json()["samples"]) == 3
    assert api.runner.commands == []


@pytest.mark.parametrize("named", ["auto", {"name": "auto"}])
def test_a_tuner_that_is_named_is_that_tuner(api: ApiService, named: Any) -> None:
    created = api.client.post(EXPERIMENTS, json=a_body(tuner=named, budget={"trials": 20})).json()
    view = api.client.get(f"{EXPERIMENTS}/{created['id']}").json()

    assert (view["tuner"], view["assessor"], view["advisor"]) == ({"name": "auto", "args": {}}, None, None)
    assert view["chosen"]["tuner"].startswith("auto was named: a Gaussian process")


def test_with_no_assessor_wanted_auto_is_the_tuner(api: ApiService) -> None:
    answer = api.client.post(
        f"{EXPERIMENTS}?dry_run=true", json=a_body(tuner="auto", budget={"trials": 20}, assessor=None)
    )

    assert answer.json()["experiment"]["tuner"] == {"name": "auto", "args": {}}
    assert answer.json()["experiment"]["advisor"] is None
    again = api.client.post(f"{EXPERIMENTS}?dry_run=true", json=answer.json()["experiment"])
    assert again.json()["experiment"] == answer.json()["experiment"]


@pytest.mark.parametrize(
    "beside",
    [
        {"objective": [{"metric": "loss"}, {"metric": "size"}]},
        {"workers": 2},
        {"assessor": "median_stop"},
        {"budget": {"trials": 5}},
    ],
)
def test_where_no_advisor_can_be_auto_is_the_tuner(api: ApiService, beside: dict[str, Any]) -> None:
    body = a_body(**{"tuner": "auto", "budget": {"trials": 20}} | beside)
    answer = api.client.post(f"{EXPERIMENTS}?dry_run=true", json=body)

    assert answer.json()["experiment"]["tuner"] == {"name": "auto", "args": {}}
    assert answer.json()["experiment"]["advisor"] is None


def test_the_file_that_a_dry_run_resolves_is_accepted_as_it_is(api: ApiService) -> None:
    resolved = api.client.post(f"{EXPERIMENTS}?dry_run=true", json=a_body()).json()["experiment"]

    again = api.client.post(f"{EXPERIMENTS}?dry_run=true", json=resolved)

    assert again.status_code == 200
    assert again.json()["experiment"] == resolved


def test_a_seed_that_nobody_chose_is_drawn_and_recorded(api: ApiService) -> None:
    body = a_body()
    del body["seed"]

    view = api.client.get(f"{EXPERIMENTS}/{api.create(body)}").json()

    assert 0 <= view["seed"] < 2**31


def test_code_sent_inline_is_stored_under_its_digest_and_can_be_named_by_it(api: ApiService) -> None:
    files = {"files": [{"path": "train.py", "content": "print(1)"}, {"path": "b.bin", "content_base64": "AP8="}]}
    view = api.client.get(
        f"{EXPERIMENTS}/{api.create(a_body(trial={'command': 'python train.py', 'code': files}))}"
    ).json()

    digest = view["trial"]["code"]
    assert digest.startswith("sha256:")
    assert api.queries.blob(digest.removeprefix("sha256:"))
    again = api.client.post(EXPERIMENTS, json=a_body(trial={"command": "python train.py", "code": digest}))
    assert again.status_code == 201


def test_code_that_the_service_does_not_have_is_refused_by_name(api: ApiService) -> None:
    body = a_body(trial={"command": "x", "code": "sha256:" + "0" * 64})

    answer = api.client.post(EXPERIMENTS, json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/trial/code"
    assert api.runner.commands == []


def test_a_command_is_split_into_words_and_an_entry_point_becomes_one(api: ApiService) -> None:
    code = {"files": [{"path": "train.py", "content": ""}]}
    created = [
        api.create(a_body(trial={"command": "python 'my script.py' --fast"})),
        api.create(a_body(trial={"entry_point": "train:main", "code": code})),
    ]

    assert [stored(api, e).spec.trial.command for e in created] == [
        ("python", "my script.py", "--fast"),
        ("python", "-c", "import train as entry; entry.main()"),
    ]


def test_short_forms_of_tuner_objective_and_executor_are_taken(api: ApiService) -> None:
    body = a_body(objective=[{"metric": "loss"}], tuner="grid", executor={"name": "local"}, budget={"parallel": 2})
    body["search_space"] = {"x": {"_type": "choice", "_value": [1, 2]}}

    spec = stored(api, api.create(body)).spec

    assert (spec.tuner.name, spec.objective.metric, spec.budget.trials) == ("grid", "loss", None)


# ── idempotency ─────────────────────────────────────────────────────────────────────────────────
def test_repeating_a_request_with_its_key_gives_the_same_experiment(api: ApiService) -> None:
    headers = {"Idempotency-Key": "k1"}

    first = api.client.post(EXPERIMENTS, json=a_body(), headers=headers)
    second = api.client.post(EXPERIMENTS, json=a_body(), headers=headers)

    assert (second.status_code, second.headers["location"]) == (201, first.headers["location"])
    assert len(api.queries.experiments()) == 1


def test_a_key_with_another_body_is_refused(api: ApiService) -> None:
    headers = {"Idempotency-Key": "k1"}
    api.client.post(EXPERIMENTS, json=a_body(), headers=headers)

    answer = api.client.post(EXPERIMENTS, json=a_body(seed=8), headers=headers)

    assert answer.status_code == 422
    assert "k1" in answer.json()["detail"]
    assert len(api.queries.experiments()) == 1


def test_two_requests_with_one_key_at_once_make_one_experiment(api: ApiService) -> None:
    async def both() -> list[str]:
        request = {"json": a_body(), "headers": {**api.client.headers, "Idempotency-Key": "k1"}}
        answers = await asyncio.gather(*(api.client.ask("POST", EXPERIMENTS, **request) for _ in range(2)))
        return [str(answer.headers["location"]) for answer in answers]

    places = asyncio.run(both())

    assert places[0] == places[1]
    assert len(api.queries.experiments()) == 1


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def test_the_list_is_paged_by_an_opaque_cursor(api: ApiService) -> None:
    created = {api.create() for _ in range(5)}

    first = api.client.get(f"{EXPERIMENTS}?limit=3").json()
    second = api.client.get(f"{EXPERIMENTS}?limit=3&cursor={first['next']}").json()

    assert (len(first["items"]), len(second["items"]), second["next"]) == (3, 2, None)
    assert {e["id"] for e in first["items"] + second["items"]} == created


def test_the_list_can_be_narrowed_to_statuses(api: ApiService) -> None:
    paused, running = api.create(), api.create()
    api.client.post(f"{EXPERIMENTS}/{paused}/pause")

    found = api.client.get(f"{EXPERIMENTS}?status=running").json()["items"]

    assert [e["id"] for e in found] == [running]


@pytest.mark.parametrize("cursor", ["x", "!!", "MQ", "9" * 500])
def test_a_cursor_of_something_else_is_refused(api: ApiService, cursor: str) -> None:
    api.create()

    answer = api.client.get(f"{EXPERIMENTS}?cursor={cursor}")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query/cursor"


def test_an_unchanged_experiment_is_not_sent_again(api: ApiService) -> None:
    place = f"{EXPERIMENTS}/{api.create()}"
    tag = api.client.get(place).headers["etag"]

    assert api.client.get(place, headers={"If-None-Match": tag}).status_code == 304
    api.client.post(f"{place}/pause")
    assert api.client.get(place, headers={"If-None-Match": tag}).status_code == 200


def test_a_read_that_waits_answers_when_its_time_is_over(api: ApiService) -> None:
    answer = api.client.get(f"{EXPERIMENTS}/{api.create()}?wait_for=ended&timeout=0.05")

    assert answer.json()["status"] == "running"


def test_a_read_that_waits_answers_at_once_for_an_ended_experiment(api: ApiService) -> None:
    experiment_id = api.create()
    api.client.post(f"{EXPERIMENTS}/{experiment_id}/stop")

    answer = api.client.get(f"{EXPERIMENTS}/{experiment_id}?wait_for=ended&timeout=30")

    assert answer.json()["status"] == "stopped"


def test_a_tuner_that_raised_is_seen_with_its_reason_and_its_traceback(api: ApiService) -> None:
    experiment_id = api.create()
    put(api, replace(
        stored(api, experiment_id),
        status=ExperimentStatus.PAUSED,
        reason=ExperimentReason.ALGORITHM_FAILED,
        message="the tuner raised ValueError",
        detail="Traceback (most recent call last): …",
    ))  # fmt: skip

    view = api.client.get(f"{EXPERIMENTS}/{experiment_id}").json()

    assert (view["status"], view["reason"]) == ("paused", "algorithm_failed")
    assert view["detail"].startswith("Traceback")


def test_what_runs_now_is_shown_with_its_process_and_its_last_report(api: ApiService) -> None:
    experiment_id = api.create()
    trial = a_trial(experiment_id=experiment_id, last_step=3, last_value=0.5)
    attempt = an_attempt(
        experiment_id=experiment_id,
        process=ProcessRecord(boot_id="b", pid=321, start_time=1),
        agent_id="a1",
        holdings=(Holding(agent_id="a1", shares={"g0": 0.5}),),
    )
    put(api, trial, attempt)

    view = api.client.get(f"{EXPERIMENTS}/{experiment_id}").json()

    assert view["running"] == [
        {
            "number": 1,
            "attempt": 1,
            "status": "running",
            "agent": "a1",
            "pid": 321,
            "devices": [{"uuid": "g0", "share": 0.5}],
            "step": 3,
            "value": 0.5,
            "reported_at": None,
        }
    ]


def test_the_best_trial_is_shown_with_its_parameters_and_infinity_as_text(api: ApiService) -> None:
    experiment_id = api.create()
    trial = a_trial(experiment_id=experiment_id, number=2, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.1})
    put(api, trial, replace(stored(api, experiment_id), best_number=2, best_value=float("inf")))

    view = api.client.get(f"{EXPERIMENTS}/{experiment_id}").json()

    assert view["best"] == {"number": 2, "value": "Infinity", "parameters": {"lr": 0.1}}


def test_the_journal_says_what_happened_in_order(api: ApiService) -> None:
    experiment_id = api.create()

    first = api.client.get(f"{EXPERIMENTS}/{experiment_id}/journal?limit=1").json()
    second = api.client.get(f"{EXPERIMENTS}/{experiment_id}/journal?cursor={first['next']}").json()

    assert first["items"][0]["kind"] == "experiment_moved"
    assert [line["line"] for line in second["items"]][:1] == [2]


# ── verbs ───────────────────────────────────────────────────────────────────────────────────────
def test_an_experiment_is_paused_resumed_stopped_and_deleted(api: ApiService) -> None:
    place = f"{EXPERIMENTS}/{api.create()}"

    statuses = [api.client.post(f"{place}/{verb}").json()["status"] for verb in ("pause", "resume", "stop")]

    assert statuses == ["paused", "running", "stopped"]
    assert api.client.delete(place).status_code == 204
    assert api.client.get(place).status_code == 404


def test_a_verb_in_the_wrong_state_answers_409_and_says_what_is_allowed(api: ApiService) -> None:
    place = f"{EXPERIMENTS}/{api.create()}"
    api.client.post(f"{place}/pause")

    answer = api.client.post(f"{place}/pause")

    assert (answer.status_code, answer.json()["allowed"]) == (409, ["resume", "stop"])


def test_a_resume_carries_the_raised_budget_and_new_code(api: ApiService) -> None:
    experiment_id = api.create()
    body = {
        "budget": {"trials": 9, "duration": "1h", "parallel": 3},
        "code": {"files": [{"path": "train.py", "content": "print(2)"}]},
    }

    answer = api.client.post(f"{EXPERIMENTS}/{experiment_id}/resume", json=body)

    assert answer.json()["budget"] == {"trials": 9, "parallel": 3, "duration": 3600.0, "failures": 10}
    command = api.runner.commands[-1]
    assert isinstance(command, ExperimentResumed)
    assert command.budget == BudgetRaise(trials=9, duration_s=3600.0, parallel=3)
    assert answer.json()["trial"]["code"] == f"sha256:{command.code_digest}"


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_a_verb_on_an_unknown_experiment_answers_404(api: ApiService, verb: str) -> None:
    answer = api.client.post(f"{EXPERIMENTS}/nobody/{verb}")

    assert answer.status_code == 404
    assert "nobody" in answer.json()["detail"]


def test_a_database_that_takes_no_writes_answers_503_with_when_to_try_again(api: ApiService) -> None:
    api.store.refusals.append(UnavailableError("the disk is full"))

    answer = api.client.post(EXPERIMENTS, json=a_body())

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"] == "the disk is full"


def test_an_id_that_is_taken_is_not_used_again(api: ApiService) -> None:
    taken = api.create()
    draws = iter([taken, taken, "fresh"])
    api.services.experiments.new_id = lambda: next(draws)

    assert api.create() == "fresh"


def test_the_command_carries_the_archive_whose_digest_the_spec_names(api: ApiService) -> None:
    api.create(a_body(trial={"command": "x", "code": {"files": [{"path": "a", "content": "1"}]}}))

    command = api.runner.commands[0]

    assert isinstance(command, ExperimentCreated)
    assert command.code is not None
    assert api.queries.blob(command.spec.trial.code_digest or "") == command.code


def test_a_read_that_waits_sees_an_end_that_comes_meanwhile_and_whoever_left(api: ApiService) -> None:
    experiment_id = api.create()
    experiments = api.services.experiments

    async def stopped_meanwhile() -> None:
        waiting = asyncio.create_task(experiments.wait_until_ended(experiment_id, timeout_s=600))
        await asyncio.sleep(0)
        await experiments.stop(experiment_id)
        await waiting

    async def gone() -> bool:
        return True

    asyncio.run(experiments.wait_until_ended(experiment_id, timeout_s=600, is_gone=gone))
    asyncio.run(stopped_meanwhile())
    assert experiments.find(experiment_id).status.has_ended


def test_a_command_that_the_home_does_not_name_is_refused(api: ApiService) -> None:
    answer = api.client.post(EXPERIMENTS, json=a_body(on_end="mail"))

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/on_end/0"
    assert "names no command 'mail'" in answer.json()["errors"][0]["detail"]
