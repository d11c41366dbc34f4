"""The API over the real dispatcher and a store in memory: commands are carried out at once, effects are dropped."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from tests.described_answers import check_as_described
from tests.memory_assets import MemoryAssets
from tests.memory_store import MemoryQueries, MemoryStore
from trials.processes.temporary import TemporaryFolder
from trials.wire.attempt import AttemptKey
from trials.wire.devices import NodeDevice
from trials.wire.messages import Hello, LogChunk
from tuner_service.analyst.answers import Answers
from tuner_service.api.app import create_app
from tuner_service.clock import new_experiment_id
from tuner_service.config import Settings
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import Command
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.totals import Totals
from tuner_service.domain.errors import TunerServiceError, UnavailableError
from tuner_service.service.access import Role
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.cluster import Channel
from tuner_service.service.events import EventHub
from tuner_service.service.experiments import Experiments, Services
from tuner_service.service.measures import Measures
from tuner_service.service.node_files import NodeFiles
from tuner_service.service.questions import Check, Question, Reply
from tuner_service.service.retention import Retention
from tuner_service.service.sessions import Sessions
from tuner_service.service.tokens import Tokens, hash_of

ADMIN_TOKEN, READ_ONLY_TOKEN, AGENT_TOKEN = "admin-token", "read-only-token", "agent-token"
NOW = 1_750_000_000.0
if "sniffio" not in sys.modules and find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]  # HTTPX would look for it again at every request


class FixedClock:
    """Moves only when a test moves it."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at


class DirectRunner:
    """Hands each command to the dispatcher and its changes to the store, on the caller's thread."""

    def __init__(self, store: MemoryStore) -> None:
        self.commands: list[Command] = []
        self.trouble: dict[str, str] = {}
        self.hangs = ""
        self.on_committed: Callable[[Changes, int], None] = lambda _, __: None
        self.measures = Measures()
        self._store = store
        self._dispatcher = Dispatcher(lineage=store.lineage, incarnation="test")

    def submit(self, command: Command) -> Future[None]:
        self.commands.append(command)
        answer: Future[None] = Future()
        try:
            self._dispatcher.handle(command)
            changes = self._dispatcher.take_changes()
            self.on_committed(changes, self._store.commit(changes))
        except TunerServiceError as exc:
            self._dispatcher.take_changes()
            answer.set_exception(exc)
        else:
            answer.set_result(None)
        return answer

    def queue_depths(self, experiment_id: str) -> dict[str, int]:
        return self._dispatcher.queue_depths(experiment_id)

    def totals(self) -> Totals:
        return self._dispatcher.totals()

    def waiting(self) -> int:
        return 0

    def readiness(self) -> dict[str, str]:
        return {"database": "ok", "runner": "ok"} | self.trouble

    def commit_hangs(self) -> str:
        return self.hangs


class FakeHub:
    """Holds logs by (attempt, stream); no agent is connected while ``logs`` is None."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str], str] | None = {}
        self.hellos: list[Hello] = []
        self.looks = 0  # for agents that may not go on
        self.node_devices: dict[str, tuple[NodeDevice, ...]] = {}

    def agents(self) -> list[Hello]:
        return self.hellos

    def close_those_who_may_not(self) -> None:
        self.looks += 1

    async def drain(self, agent_id: str, *, on: bool) -> None:
        raise UnavailableError(f"agent {agent_id} is not connected")

    def hang_up(self, agent_id: str) -> bool:
        return any(hello.agent_id == agent_id for hello in self.hellos)

    def channels(self) -> list[Channel]:
        return [Channel(hello=hello, send=lambda _: None, close=lambda: None) for hello in self.hellos]

    def devices(self) -> dict[str, tuple[NodeDevice, ...]]:
        return self.node_devices

    async def read_log(
        self, agent_id: str, key: AttemptKey, nonce: str, stream: str, offset: int, limit: int
    ) -> LogChunk:
        if self.logs is None:
            raise UnavailableError(f"agent {agent_id} is not connected; try again once it is")
        text = self.logs.get((str(key), stream), "").encode()
        start = offset if offset >= 0 else max(0, len(text) + offset)
        data = text[start : start + limit]
        return LogChunk(request_id="1", data=data.decode(), begin=start, end=start + len(data), size=len(text))


class DirectAnalyst:
    """Computes where it is asked; the real one does so in a process of its own."""

    def __init__(self, store: MemoryStore) -> None:
        self.asked: list[Question] = []
        self.prepared = 0
        self._answers = Answers(store.queries)
        self._turn = threading.Lock()

    def prepare(self) -> None:
        self.prepared += 1

    def ask(self, question: Question, check: Check) -> Reply:
        with self._turn:
            self.asked.append(question)
            return self._answers.reply(question, check)


@dataclass(frozen=True, kw_only=True)
class ApiClient:
    """Requests to the application in this process, one event loop each."""

    app: FastAPI
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        return asyncio.run(self.ask(method, path, **request))

    async def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """No session: cookies are those that ``request`` names, and a redirect is an answer."""
        headers = httpx.Headers(self._client.headers)
        headers.update(request.pop("headers", None))
        sent = httpx.Request(method, f"http://localhost{path}", headers=headers, **request)
        answer = await self._transport.handle_async_request(sent)
        answer.request = sent
        await answer.aread()
        check_as_described(self.app, method, answer)
        return answer

    @cached_property
    def _transport(self) -> httpx.ASGITransport:
        return httpx.ASGITransport(self.app, raise_app_exceptions=False)

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        """Knows what a client sends along: one that sends it costs more than what it sends."""
        return httpx.AsyncClient(transport=self._transport, headers=self.headers)

    def get(self, path: str, **request: Any) -> httpx.Response:
        return self.request("GET", path, **request)

    def post(self, path: str, **request: Any) -> httpx.Response:
        return self.request("POST", path, **request)

    def delete(self, path: str, **request: Any) -> httpx.Response:
        return self.request("DELETE", path, **request)


@dataclass(frozen=True, kw_only=True)
class ApiService:
    client: ApiClient
    store: MemoryStore
    runner: DirectRunner
    hub: FakeHub
    analyst: DirectAnalyst
    services: Services
    asset_rows: MemoryAssets
    clock: FixedClock
    warnings: dict[str, str]

    @property
    def queries(self) -> MemoryQueries:
        return self.store.queries

    def create(self, body: dict[str, Any] | None = None) -> str:
        answer = self.client.post("/api/v1/experiments", json=body or a_body())
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def as_role(self, token: str | None) -> ApiClient:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return ApiClient(app=self.client.app, headers=headers)


def an_api_service(**settings: Any) -> ApiService:
    store = MemoryStore()
    runner, hub, analyst = DirectRunner(store), FakeHub(), DirectAnalyst(store)
    rows = MemoryAssets()
    temporary = TemporaryFolder("api-assets")
    folder = temporary.path
    clock, warnings = FixedClock(), dict[str, str]()
    assets = Assets(AssetStore(str(folder), home=folder, lineage=rows.lineage), rows, clock)
    home = {ADMIN_TOKEN: Role.ADMIN, READ_ONLY_TOKEN: Role.READ_ONLY, AGENT_TOKEN: Role.AGENT}
    tokens = Tokens(home={hash_of(token): role for token, role in home.items()}, store=store, clock=clock)
    events = EventHub(queries=store.queries, lineage=store.lineage, clock=clock)
    runner.on_committed = events.committed
    experiments = Experiments(
        runner=runner, queries=store.queries, clock=clock, hub=hub, assets=assets, new_id=new_experiment_id
    )
    retention = Retention(
        queries=store.queries, rows=store.moved_rows, clock=clock, submit=experiments.submit, wake=lambda: None
    )
    services = Services(
        experiments=experiments,
        retention=retention,
        queries=store.queries,
        analyst=analyst,
        runner=runner,
        hub=hub,
        config=replace(Settings(home=Path("/nowhere"), db="sqlite:////nowhere/tuner.db"), **settings),
        assets=assets,
        node_files=NodeFiles(
            folder, store.queries, checkpoint_store="", asset_store=str(folder), staging=folder / "in"
        ),
        tokens=tokens,
        sessions=Sessions(store=store, tokens=tokens, clock=clock, lineage=store.lineage),
        events=events,
        version="1.2.3",
        pid=4711,
        warnings=lambda: warnings,
    )
    client = ApiClient(app=create_app(services), headers={"authorization": f"Bearer {ADMIN_TOKEN}"})
    service = ApiService(
        client=client,
        store=store,
        runner=runner,
        hub=hub,
        analyst=analyst,
        services=services,
        asset_rows=rows,
        clock=clock,
        warnings=warnings,
    )
    weakref.finalize(service, temporary.remove)
    return service


def a_body(**overrides: Any) -> dict[str, Any]:
    """An experiment file as the service takes it."""
    body: dict[str, Any] = {
        "name": "digits",
        "seed": 7,
        "objective": {"metric": "accuracy", "goal": "maximize"},
        "search_space": {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}},
        "tuner": {"name": "random"},
        "budget": {"trials": 4, "parallel": 2},
        "trial": {"command": "python train.py"},
    }
    return body | overrides
