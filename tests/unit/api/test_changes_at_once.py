"""Of several changes of what was seen alike that come at the very same moment, one is made."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.builders import a_trial
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import Command

EXPERIMENTS = "/api/v1/experiments"
SPACE = {"search_space": {"lr": {"_type": "uniform", "_value": [0, 1]}}}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


@pytest.mark.parametrize(
    ("method", "path", "bodies"),
    [
        ("PATCH", f"{EXPERIMENTS}/{{id}}", [{"note": "mine"}, {"note": "yours"}]),
        ("PUT", f"{EXPERIMENTS}/{{id}}/search-space", [SPACE, SPACE]),
        ("PUT", "/api/v1/quota-groups/default", [{"gpus": 1}, {"gpus": 2}]),
    ],
)
def test_one_of_two_that_saw_the_same_is_refused_while_the_other_is_written(
    api: ApiService, monkeypatch: pytest.MonkeyPatch, method: str, path: str, bodies: list[dict[str, Any]]
) -> None:
    path = path.format(id=api.create())
    seen = {"If-Match": api.client.get(path).headers["etag"]}
    submit, turns = api.runner.submit, api.services.experiments._turns
    held: list[tuple[Command, Future[None]]] = []

    def holds(command: Command) -> Future[None]:
        held.append((command, Future()))
        return held[-1][1]

    async def scene() -> list[int]:
        asked = [asyncio.ensure_future(api.client.ask(method, path, json=body, headers=seen)) for body in bodies]
        while len(held) < len(asked) and not any(turn._waiters for turn in turns.values() if held):
            await asyncio.sleep(0)
        monkeypatch.setattr(api.runner, "submit", submit)
        for command, future in held:
            submit(command).result(0)
            future.set_result(None)
        return [answer.status_code for answer in await asyncio.gather(*asked)]

    monkeypatch.setattr(api.runner, "submit", holds)
    assert sorted(asyncio.run(scene())) == [200, 412]


def test_every_change_is_made_in_the_turn_of_who_looked_first(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment_id = api.create(a_body(tuner={"name": "random"}))
    trial = a_trial(experiment_id=experiment_id)
    api.store.commit(Changes(trials={(trial.experiment_id, 1): trial}))
    submit, turns = api.runner.submit, api.services.experiments._turns
    free = list[str]()

    def watched(command: Command) -> Future[None]:
        if not any(turn.locked() for turn in turns.values()):
            free.append(type(command).__name__)
        return submit(command)

    monkeypatch.setattr(api.runner, "submit", watched)
    experiment, any_state = f"{EXPERIMENTS}/{experiment_id}", {"If-Match": "*"}
    added = {"parameters": {"lr": 0.01}}
    asked: list[tuple[str, str, dict[str, Any] | None]] = [
        ("PATCH", experiment, {"note": "x"}),
        ("PUT", f"{experiment}/search-space", SPACE),
        ("POST", f"{experiment}/trials", added),
        ("POST", f"{experiment}/import", {"results": [{**added, "value": 1.0}]}),
        ("POST", f"{experiment}/pause", None),
        ("POST", f"{experiment}/resume", None),
        ("POST", f"{experiment}/clone", None),
        ("POST", f"{experiment}/stop", None),
        ("PUT", "/api/v1/quota-groups/default", {"gpus": 1}),
        ("DELETE", "/api/v1/quota-groups/default", None),
        ("DELETE", experiment, None),
    ]
    for method, path, body in asked:
        before = len(api.runner.commands)
        answer = api.client.request(method, path, headers=any_state, **({} if body is None else {"json": body}))
        assert answer.status_code < 300, (method, path, answer.text)
        assert len(api.runner.commands) > before
    assert free == []
    assert not turns, "nobody waits for a turn that is over"


def test_a_change_of_who_did_not_look_waits_for_nobody(api: ApiService) -> None:
    experiment_id = api.create()

    async def scene() -> None:
        async with api.services.experiments.turn(f"experiment {experiment_id}"):
            answer = await api.client.ask("POST", f"{EXPERIMENTS}/{experiment_id}/stop")
            assert answer.status_code == 200

    asyncio.run(scene())
