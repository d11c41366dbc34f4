"""While a commit hangs, reads are answered and changes are refused before they wait for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, ApiService, a_body, an_api_service
from tuner_service.dispatcher.commands import Command
from tuner_service.service.hanging_commits import Outcomes

EXPERIMENTS = "/api/v1/experiments"
HANGS = "a commit has not returned for 12 s"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def test_what_would_change_something_is_refused_and_nothing_of_it_is_done(api: ApiService) -> None:
    experiment_id = api.create()
    done = len(api.runner.commands)
    api.runner.hangs = HANGS
    changes = [
        ("POST", EXPERIMENTS, a_body()),
        ("PATCH", f"{EXPERIMENTS}/{experiment_id}", {"note": "later"}),
        ("DELETE", f"{EXPERIMENTS}/{experiment_id}", None),
        ("POST", "/api/v1/session", {"token": ADMIN_TOKEN}),  # a session is a row, too
        ("POST", "/api/v1/tokens", {"name": "someone", "role": "admin"}),
    ]

    for method, path, body in changes:
        answer = api.client.request(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 503, path
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"] == "urn:tuner:problem:unavailable"
        assert answer.json()["detail"] == f"nothing can be changed now, and this was not done: {HANGS}"

    assert len(api.runner.commands) == done
    assert api.client.get(f"{EXPERIMENTS}/{experiment_id}").status_code == 200
    assert api.as_role("unknown").post(EXPERIMENTS, json=a_body()).status_code == 401, "strangers are told nothing"
    agents = api.as_role(AGENT_TOKEN).request("PUT", "/api/v1/agents/local/files/logs/x", content=b"")
    assert agents.status_code != 503, "files of agents need no commit"
    api.runner.hangs = ""
    assert api.client.request("PATCH", f"{EXPERIMENTS}/{experiment_id}", json={"note": "later"}).status_code == 200


def test_a_creation_whose_commit_hangs_is_answered_and_once_that_is_over_its_key_finds_it(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiments, submit = api.services.experiments, api.runner.submit
    held: list[tuple[Command, Future[None]]] = []

    def hangs(command: Command) -> Future[None]:
        held.append((command, Future()))
        held[-1][1].set_running_or_notify_cancel()
        api.runner.hangs = HANGS
        return held[-1][1]

    async def scene() -> None:
        monkeypatch.setattr(api.runner, "submit", hangs)
        first = await api.client.ask("POST", EXPERIMENTS, json=a_body(), headers=key)
        assert first.status_code == 503
        assert f"whether this is done is not known yet: {HANGS}" in first.json()["detail"]

        api.runner.hangs = ""  # it has returned, and the next step takes what waited
        again = asyncio.ensure_future(api.client.ask("POST", EXPERIMENTS, json=a_body(), headers=key))
        while not experiments._outcomes._unknown or not any(turn.locked() for turn in experiments._turns.values()):
            await asyncio.sleep(0)
        ((command, future),) = held
        submit(command).result(0)
        future.set_result(None)
        answer = await again
        assert answer.status_code == 201
        assert [answer.json()["id"]] == [e.id for e in api.queries.experiments()]

    key = {"idempotency-key": "one"}
    experiments._outcomes = Outcomes(api.runner.commit_hangs, look_s=0)
    asyncio.run(scene())


def test_an_archive_whose_answer_nobody_waits_for_is_made_all_the_same(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment_id, woken = api.create(), list[str]()
    api.client.post(f"{EXPERIMENTS}/{experiment_id}/stop")
    monkeypatch.setattr(api.services.retention, "wake", lambda: woken.append("now"))
    submit = api.runner.submit
    waiting: Future[None] = Future()

    def hangs(command: Command) -> Future[None]:
        submit(command)
        api.runner.hangs = HANGS
        return waiting

    monkeypatch.setattr(api.runner, "submit", hangs)
    api.services.experiments._outcomes = Outcomes(api.runner.commit_hangs, look_s=0)

    assert api.client.post(f"{EXPERIMENTS}/{experiment_id}/archive").status_code == 503
    assert woken == []
    waiting.set_result(None)
    assert woken == ["now"]
