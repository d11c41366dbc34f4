"""Ask and tell over HTTP: for evaluators that run themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.api_service import NOW, READ_ONLY_TOKEN, ApiService, a_body, an_api_service
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.items import Queue, StopAdvised, Suggested, SuggestionRequested, Taken
from tuner_service.service.asking import token_for


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


class Asked:
    """An experiment whose trials are asked for, and a worker that answers when it is told to."""

    def __init__(self, api: ApiService, **overrides: Any) -> None:
        trial = {"lease": "10m"} | overrides.pop("trial", {})
        self.api, self.id = api, api.create(a_body(trial=trial, **overrides))
        self.path = f"/api/v1/experiments/{self.id}"

    def ask(self, *, key: str | None = None, timeout: float = 0) -> httpx.Response:
        headers = {} if key is None else {"idempotency-key": key}
        return self.api.client.post(f"{self.path}/ask", params={"timeout": timeout}, headers=headers)

    def tell(self, token: str, **body: Any) -> httpx.Response:
        return self.api.client.post(f"{self.path}/tell", json={"token": token, **body}, params={"timeout": 0})

    def suggest(self, lr: float = 0.01) -> None:
        answers: list[Any] = []
        for item in self._pending(Queue.TUNER):
            asks = isinstance(item, SuggestionRequested)
            answers.append(Suggested(line=item.line, parameters={"lr": lr}) if asks else Taken(line=item.line))
            if asks:
                break
        self._answer(Queue.TUNER, answers)

    def advise_stop(self) -> None:
        item = self._pending(Queue.ASSESSOR)[-1]
        advice = StopAdvised(line=item.line, sequence=item.sequences[-1], message="hopeless")
        self._answer(Queue.ASSESSOR, [Taken(line=i.line) for i in self._pending(Queue.ASSESSOR)[:-1]] + [advice])

    def keep(self) -> None:
        self._answer(Queue.ASSESSOR, [Taken(line=item.line) for item in self._pending(Queue.ASSESSOR)])

    def hold(self, **asked: Any) -> str:
        self.suggest()
        return str(self.ask(**asked).json()["token"])

    @property
    def _state(self) -> Any:
        return self.api.runner._dispatcher.state.experiments[self.id]  # the worker's side of it

    def _pending(self, queue: Queue) -> list[Any]:
        return list(self._state.queues[queue].pending)

    def _answer(self, queue: Queue, answers: list[Any]) -> None:
        generation = self._state.worker.generation
        command = c.QueueAnswered(
            at=NOW, experiment_id=self.id, generation=generation, queue=queue, answers=tuple(answers)
        )
        self.api.runner.submit(command).result()


@pytest.fixture
def asked(api: ApiService) -> Asked:
    return Asked(api)


# ── the file ────────────────────────────────────────────────────────────────────────────────────
def test_a_file_with_a_lease_has_no_command(api: ApiService, asked: Asked) -> None:
    view = api.client.get(asked.path).json()

    assert (view["trial"]["lease"], view["trial"]["command"]) == (600.0, None)
    again = {name: view[name] for name in a_body()}
    assert api.client.post("/api/v1/experiments", json=again).status_code == 201


@pytest.mark.parametrize(
    ("overrides", "pointer"),
    [
        ({"trial": {"lease": "1m", "command": "python train.py"}}, "/trial/command"),
        ({"trial": {"lease": "1m", "entry_point": "train:main", "code": {"files": []}}}, "/trial/entry_point"),
        ({"trial": {"lease": "1m", "heartbeat": 10}}, "/trial/heartbeat"),
        ({"trial": {"lease": "1m", "resources": {"gpus": 1}}}, "/trial/resources"),
        ({"trial": {"lease": 0}}, "/trial/lease"),
        ({"trial": {"lease": "soon"}}, "/trial/lease"),
        ({"trial": {}}, "/trial"),
        ({"trial": {"lease": "1m"}, "tuner": None, "advisor": "hyperband"}, "/advisor"),
        ({"trial": {"lease": "1m"}, "tuner": None, "advisor": {"class": "mine:Advisor"}}, "/advisor"),
    ],
)
def test_what_does_not_go_with_a_lease_is_named(api: ApiService, overrides: dict[str, Any], pointer: str) -> None:
    answer = api.client.post("/api/v1/experiments", json=a_body(**overrides))

    assert answer.status_code == 422
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]


def test_an_advisor_that_lets_no_trial_rest_goes_with_a_lease(api: ApiService) -> None:
    body = a_body(trial={"lease": "1m"}, budget={"trials": 20})
    del body["tuner"]

    view = api.client.post("/api/v1/experiments", json=body).json()
    assert view["advisor"]["name"] == "auto"


# ── ask ─────────────────────────────────────────────────────────────────────────────────────────
def test_an_evaluator_asks_and_tells(asked: Asked) -> None:
    asked.suggest(0.02)
    held = asked.ask().json()

    assert (held["id"], held["number"], held["attempt"]) == (f"{asked.id}/1", 1, 1)
    assert (held["parameters"], held["last_step"], held["lease"], held["held"]) == ({"lr": 0.02}, None, 600.0, True)
    assert held["held_until"] == "2025-06-15T15:16:40.000Z"
    told = asked.tell(held["token"], value=0.9).json()
    assert (told["status"], told["decision"], told["taken"]) == ("succeeded", "stop", True)
    assert asked.api.client.get(asked.path).json()["best"]["value"] == 0.9


def test_where_nothing_waits_the_asker_is_sent_away_for_a_while(asked: Asked) -> None:
    answer = asked.ask()

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "0 of 2 trials" in answer.json()["detail"]
    assert "has suggested none yet" in answer.json()["detail"]


def test_where_as_many_run_as_may_that_is_said(asked: Asked) -> None:
    asked.hold()
    asked.hold()

    assert "2 of 2 trials" in asked.ask().json()["detail"]
    assert "no more run at a time" in asked.ask().json()["detail"]


def test_a_paused_experiment_is_asked_again_later(asked: Asked) -> None:
    asked.api.client.post(f"{asked.path}/pause")

    answer = asked.ask()
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        f"experiment {asked.id} is paused; ask again when it runs",
    )


def test_of_an_ended_experiment_nothing_is_asked(asked: Asked) -> None:
    asked.api.client.post(f"{asked.path}/stop")

    answer = asked.ask()
    assert (answer.status_code, answer.json()["allowed"]) == (409, ["resume"])


def test_trials_that_the_service_launches_are_not_asked_for(api: ApiService) -> None:
    launched = api.create()

    assert api.client.post(f"/api/v1/experiments/{launched}/ask").status_code == 409
    assert api.client.post("/api/v1/experiments/nothing/ask").status_code == 404
    assert api.client.post("/api/v1/experiments/nothing/tell", json={"token": "a"}).status_code == 404


def test_an_asker_is_answered_as_soon_as_there_is_a_trial(asked: Asked) -> None:
    async def both() -> httpx.Response:
        waiting = asyncio.create_task(asked.api.client.ask("POST", f"{asked.path}/ask", params={"timeout": 20}))
        while not asked.api.services.experiments.asking and not waiting.done():
            await asyncio.sleep(0)
        asked.suggest()
        return await waiting

    assert asyncio.run(both()).json()["number"] == 1


def test_the_same_key_gives_the_same_trial(asked: Asked) -> None:
    asked.suggest()
    asked.suggest()
    first, again, other = asked.ask(key="k"), asked.ask(key="k"), asked.ask(key="other")

    assert first.json() == again.json()
    assert (first.json()["number"], other.json()["number"]) == (1, 2)


def test_a_key_whose_trial_was_told_gives_it_again_and_no_other(asked: Asked) -> None:
    token = asked.hold(key="k")
    asked.tell(token, value=0.5)
    asked.suggest()

    again = asked.ask(key="k").json()
    assert (again["token"], again["number"], again["held"], again["held_until"]) == (token, 1, False, None)


def test_one_key_in_two_experiments_is_two_keys(api: ApiService, asked: Asked) -> None:
    other = Asked(api)

    assert asked.hold(key="k") != other.hold(key="k")


# ── tell ────────────────────────────────────────────────────────────────────────────────────────
def test_the_end_told_again_is_answered_again(asked: Asked) -> None:
    token = asked.hold()
    body = {"values": {"accuracy": "NaN", "size": 3}}

    assert asked.tell(token, **body).json() == asked.tell(token, **body).json()
    trials = asked.api.client.get(f"{asked.path}/trials").json()["items"]
    assert [trial["final"] for trial in trials] == [{"accuracy": "NaN", "size": 3.0}]


def test_an_error_told_again_is_answered_again(asked: Asked) -> None:
    token = asked.hold()

    first, again = asked.tell(token, error="no luck"), asked.tell(token, error="no luck")
    assert first.json() == again.json()
    assert (first.json()["status"], first.json()["reason"]) == ("failed", "told_failed")


@pytest.mark.parametrize("other", [{"value": 0.6}, {"error": "no luck"}, {"values": {"accuracy": 0.5, "size": 1}}])
def test_another_end_with_a_spent_token_is_refused(asked: Asked, other: dict[str, Any]) -> None:
    token = asked.hold()
    asked.tell(token, value=0.5)

    answer = asked.tell(token, **other)
    assert answer.status_code == 409
    assert "was told before" in answer.json()["detail"]


def test_an_error_does_not_pass_for_another(asked: Asked) -> None:
    token = asked.hold()
    asked.tell(token, error="no luck")

    assert asked.tell(token, error="other").status_code == 409
    assert asked.tell(token, value=0.1).status_code == 409


def test_a_token_that_nobody_was_given_is_not_found(asked: Asked) -> None:
    answer = asked.tell("made up", value=0.1)

    assert answer.status_code == 404
    assert "ask for one" in answer.json()["detail"]


def test_what_was_given_back_is_not_told_any_more(asked: Asked) -> None:
    token = asked.hold()
    asked.api.runner.submit(c.TimePassed(at=NOW + 601))

    answer = asked.tell(token, value=0.9)
    assert (answer.status_code, answer.json()["allowed"]) == (409, ["ask"])
    assert "was given back" in answer.json()["detail"]


def test_a_report_is_answered_with_the_assessors_word(api: ApiService) -> None:
    asked = Asked(api, assessor="median_stop")
    token = asked.hold()

    async def judged(judge: Any, step: int) -> dict[str, Any]:
        body = {"token": token, "step": step, "value": 0.1}
        report = asyncio.create_task(api.client.ask("POST", f"{asked.path}/tell", json=body, params={"timeout": 20}))
        while not asked._pending(Queue.ASSESSOR) and not report.done():  # the worker's side of it
            await asyncio.sleep(0)
        assert not report.done()
        judge()
        answer: dict[str, Any] = (await report).json()
        return answer

    kept = asyncio.run(judged(asked.keep, 0))
    assert (kept["status"], kept["decision"], kept["taken"]) == ("running", "continue", True)
    stopped = asyncio.run(judged(asked.advise_stop, 1))
    assert (stopped["status"], stopped["decision"], stopped["message"]) == ("early_stopped", "stop", "hopeless")


def test_who_tells_on_after_a_stop_is_told_so_again(api: ApiService) -> None:
    asked = Asked(api, assessor="median_stop")
    token = asked.hold()
    asked.tell(token, step=0, value=0.1)
    asked.advise_stop()

    for body in ({"step": 1, "value": 0.2}, {"value": 0.9}, {"error": "killed"}, {"ended": False}):
        told = asked.tell(token, **body).json()
        assert (told["status"], told["decision"], told["taken"]) == ("early_stopped", "stop", False), body


@pytest.mark.parametrize("end", [{"value": 0.9}, {"error": "no luck"}], ids=["value", "error"])
def test_an_end_told_again_after_the_assessor_cut_it_off_is_answered_as_not_taken(
    api: ApiService, end: dict[str, Any]
) -> None:
    asked = Asked(api, assessor="median_stop", deterministic=True, trial={"max_attempts": 1})
    asked.keep()
    token = asked.hold()
    asked.tell(token, step=0, value=0.1)
    assert asked.tell(token, **end).json()["status"] == "running"
    asked.advise_stop()

    again = asked.tell(token, **end)
    assert again.status_code == 200
    told = again.json()
    assert (told["status"], told["decision"], told["taken"]) == ("early_stopped", "stop", False)


def test_an_error_of_an_earlier_attempt_told_again_was_taken_all_the_same(api: ApiService) -> None:
    asked = Asked(api, assessor="median_stop", trial={"max_attempts": 2})
    first = asked.hold()
    asked.tell(first, error="no luck")
    second = asked.ask().json()["token"]
    asked.tell(second, step=0, value=0.1)
    asked.advise_stop()

    told = asked.tell(first, error="no luck").json()
    assert (told["status"], told["taken"]) == ("early_stopped", True)


def test_a_report_that_nobody_judges_is_answered_at_once(asked: Asked) -> None:
    token = asked.hold()

    assert asked.tell(token, step=3, values={"loss": 2}).json()["decision"] == "continue"
    assert asked.tell(token, step=3, values={"loss": 2}).json()["decision"] == "continue"
    assert asked.tell(token, ended=False).json()["taken"]
    metrics = asked.api.client.get(f"/api/v1/trials/{asked.id}/1/metrics").json()["items"]
    assert [(metric["step"], metric["values"]) for metric in metrics] == [(3, {"loss": 2.0})]
    down = asked.tell(token, step=2, value=1)
    assert (down.status_code, down.json()["errors"][0]["pointer"]) == (422, "/step")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"value": 0.1, "values": {"accuracy": 0.2}}, "/value"),
        ({"value": 0.1, "error": "x"}, "/error"),
        ({"step": 1, "error": "x"}, "/error"),
        ({"step": 1, "value": 0.1, "ended": True}, "/ended"),
        ({"value": 0.1, "ended": False}, "/ended"),
        ({"error": "x", "ended": False}, "/ended"),
        ({"values": {"loss": 1}}, "/values/accuracy"),
        ({"step": 1}, "/values"),
        ({"step": -1, "value": 1}, "/step"),
        ({"step": 1.5, "value": 1}, "/step"),
        ({"step": 2**53, "value": 1}, "/step"),
        ({"value": "high"}, "/value"),
        ({"value": True}, "/value"),
        ({"values": {"": 1}}, "/values"),
        ({"values": {"n" * 201: 1}}, "/values"),
        ({"values": {"accuracy\n": 1}}, "/values"),
        ({"value": 10**400}, "/value"),
        ({"step": 10**400, "value": 1}, "/step"),
        ({"values": {f"m{n}": 1 for n in range(1_001)}}, "/values"),
        ({"error": "x" * 16_001}, "/error"),
        ({"valeu": 1}, "/valeu"),
    ],
)
def test_every_fault_of_what_is_told_is_named_and_nothing_is_lost(
    asked: Asked, body: dict[str, Any], pointer: str
) -> None:
    token = asked.hold()
    answer = asked.tell(token, **body)

    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert asked.tell(token, value=0.5).json()["status"] == "succeeded"


def test_who_may_only_read_asks_for_nothing(asked: Asked) -> None:
    reader = asked.api.as_role(READ_ONLY_TOKEN)

    assert reader.post(f"{asked.path}/ask").status_code == 403
    assert reader.post(f"{asked.path}/tell", json={"token": "a"}).status_code == 403


def test_what_an_evaluator_holds_has_no_log(asked: Asked) -> None:
    asked.hold()

    answer = asked.api.client.get(f"/api/v1/trials/{asked.id}/1/logs")
    assert answer.status_code == 404
    assert "whose output is its own" in answer.json()["detail"]


def test_two_requests_with_one_token_are_not_at_it_at_a_time(asked: Asked) -> None:
    asked.suggest()
    experiments = asked.api.services.experiments
    token = token_for(asked.id, "k")
    experiments.asking.add(token)
    assert asked.ask(key="k").status_code == 503
    experiments.asking.discard(token)
    assert asked.ask(key="k").status_code == 200
