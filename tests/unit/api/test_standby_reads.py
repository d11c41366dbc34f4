"""Which requests a standby answers itself, and which it leaves to the active service."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.api_service import ADMIN_TOKEN, ApiService, an_api_service
from tuner_service.api.errors import RETRY_AFTER_S
from tuner_service.api.own_page import PAGE_HEADER
from tuner_service.api.standby import READS, StandbyApp

ACTIVE = "http://127.0.0.1:8701"
# Of agents, of files that may be on another machine, of what has not happened yet, or of who signs in.
LEFT = {
    "/api/v1/agents",
    "/api/v1/agents/{agent_id}/files/{area}/{path:path}",
    "/api/v1/assets",
    "/api/v1/assets/bytes/{digest}",
    "/api/v1/assets/missing",
    "/api/v1/assets/store",
    "/api/v1/assets/versions/{name}",
    "/api/v1/assets/{reference}",
    "/api/v1/assets/{reference}/files",
    "/api/v1/assets/{reference}/files/{path:path}",
    "/api/v1/devices",
    "/api/v1/events",
    "/api/v1/executors",
    "/api/v1/experiments/{experiment_id}/events",
    "/api/v1/session",
    "/api/v1/sessions",
    "/api/v1/tokens",
    "/api/v1/tokens/{name}",
    "/api/v1/agents/{agent_id}",
    "/api/v1/sessions/{session_id}",
    "/api/v1/trials/{experiment_id}/{number}/checkpoints/{digest}",
    "/api/v1/trials/{experiment_id}/{number}/files",
    "/api/v1/trials/{experiment_id}/{number}/files/{path:path}",
    "/api/v1/trials/{experiment_id}/{number}/logs",
    "/api/v1/trials/{experiment_id}/{number}/resources",
    "/healthz",
    "/metrics",
    "/readyz",
}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def app_of(api: ApiService) -> FastAPI:
    from tuner_service.api.app import create_app

    return create_app(api.services)


def ask(
    app: Any, method: str, path: str, *, token: str = ADMIN_TOKEN, accept: str = "*/*", **more: Any
) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        headers = {"accept": accept} | ({"authorization": f"Bearer {token}"} if token else {})
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await client.request(method, path, **more)

    return asyncio.run(asked())


def test_of_every_route_it_is_known_who_answers_it(api: ApiService) -> None:
    """Of a new one that is read from rows alone: add it to READS."""
    there = {route.path for route in app_of(api).state.routes if "GET" in route.methods}
    assert set(READS) - there == set(), "no route of ours any more"
    assert there - READS == LEFT


def test_a_read_is_answered_as_the_active_service_would_and_is_marked(api: ApiService) -> None:
    created, inner = api.create(), app_of(api)
    standby = StandbyApp(lambda: ACTIVE, lambda: inner)
    for path in ("/api/v1/experiments", f"/api/v1/experiments/{created}", f"/api/v1/experiments/{created}/trials"):
        answer, plain = ask(standby, "GET", path), ask(inner, "GET", path)
        assert (answer.status_code, answer.headers["tuner-role"]) == (200, "standby")
        assert answer.content == plain.content
        assert "tuner-role" not in plain.headers
    assert ask(standby, "GET", "/api/v1/experiments/nobody").status_code == 404
    assert ask(standby, "GET", "/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/experiments"),
        ("DELETE", "/api/v1/experiments/x"),
        ("PATCH", "/api/v1/experiments/x"),
        ("GET", "/api/v1/agents"),
        ("GET", "/api/v1/experiments/x/events"),
        ("GET", "/api/v1/experiments/x?wait_for=ended"),
        ("GET", "/api/v1/experiments/x?timeout=1&wait%5Ffor=ended"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("OPTIONS", "/api/v1/experiments"),
    ],
)
def test_whatever_else_is_asked_is_left_to_the_active_service(api: ApiService, method: str, path: str) -> None:
    inner = app_of(api)
    before = len(api.runner.commands)
    answer = ask(StandbyApp(lambda: ACTIVE, lambda: inner), method, path)
    assert (answer.status_code, answer.headers["tuner-active"]) == (503, ACTIVE)
    assert f"the active one is {ACTIVE}" in answer.json()["detail"]
    assert len(api.runner.commands) == before


def test_a_server_that_hangs_stops_no_answer_that_needs_none(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        transport = httpx.ASGITransport(app=StandbyApp(lambda: ACTIVE, lambda: inner))
        headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            reads = [asyncio.ensure_future(client.get(path)) for path in ("/api/v1/experiments", curves, timeline)]
            try:
                while len(asked) < len(reads):
                    await asyncio.sleep(0)
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.post("/api/v1/experiments", json={})).headers["tuner-active"] == ACTIVE
                assert not any(read.done() for read in reads)
            finally:
                answers.set()
            assert [(await read).status_code for read in reads] == [200, 200, 200]

    def version() -> int:
        asked.append("version")
        assert answers.wait(10), "it was asked on the event loop"
        return 1

    curves, timeline = (f"/api/v1/experiments/{api.create()}/{of}" for of in ("curves", "timeline"))
    inner, asked, answers = app_of(api), list[str](), threading.Event()
    monkeypatch.setattr(api.queries, "version", version)
    monkeypatch.setattr(api.queries, "version_waits", True)

    asyncio.run(scene())


def test_a_token_that_is_not_known_here_may_be_known_there(api: ApiService) -> None:
    inner, active = app_of(api), [ACTIVE]
    standby = StandbyApp(lambda: active[0], lambda: inner)
    for token in ("another", ""):
        answer = ask(standby, "GET", "/api/v1/experiments", token=token)
        assert (answer.status_code, answer.headers["tuner-active"]) == (503, ACTIVE)
    active[0] = ""
    assert ask(standby, "GET", "/api/v1/experiments", token="another").status_code == 401


def test_a_page_is_not_told_that_nobody_is_signed_in_while_nobody_is_active(api: ApiService) -> None:
    """Who is, only the active service knows: the page would ask for a token in the moment of a takeover."""
    inner = app_of(api)
    page = {PAGE_HEADER: "1", "cookie": "tuner-session=s"}
    answer = ask(StandbyApp(lambda: "", lambda: inner), "GET", "/api/v1/experiments", token="", headers=page)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, str(RETRY_AFTER_S))
    assert "nobody is active" in answer.json()["detail"]


def test_a_name_that_is_not_its_own_reads_nothing(api: ApiService) -> None:
    inner = app_of(api)
    answer = ask(
        StandbyApp(lambda: ACTIVE, lambda: inner), "GET", "/api/v1/experiments", headers={"host": "evil.example"}
    )
    assert answer.status_code == 403


def test_a_browser_is_sent_on_with_path_and_query(api: ApiService) -> None:
    inner = app_of(api)
    answer = ask(StandbyApp(lambda: ACTIVE, lambda: inner), "GET", "/experiments/x?tab=%20a", accept="text/html")
    assert (answer.status_code, answer.headers["location"]) == (307, f"{ACTIVE}/experiments/x?tab=%20a")


def test_what_it_warns_of_itself_is_for_those_with_a_token(api: ApiService) -> None:
    """Its certificate is its own: the active service knows nothing of its end."""
    inner, warned = app_of(api), {"certificate": "the TLS certificate /c ends in 9 days"}
    standby = StandbyApp(lambda: ACTIVE, lambda: inner, warnings=lambda: warned)
    assert ask(standby, "GET", "/readyz").json()["warnings"] == warned
    assert ask(standby, "GET", "/readyz", token="another").json()["warnings"] == {}
    assert ask(standby, "GET", "/readyz", token="").json()["warnings"] == {}
    away = StandbyApp(lambda: ACTIVE, warnings=lambda: warned)
    assert ask(away, "GET", "/readyz").json()["warnings"] == {}


def test_without_a_database_it_says_who_it_is_and_reads_nothing() -> None:
    standby = StandbyApp(lambda: "")
    assert ask(standby, "GET", "/healthz").status_code == 200
    ready = ask(standby, "GET", "/readyz")
    assert (ready.status_code, ready.json()["role"], ready.json()["active"]) == (503, "standby", None)
    answer = ask(standby, "GET", "/api/v1/experiments")
    assert (answer.status_code, "tuner-active" in answer.headers) == (503, False)
    assert "nobody is active" in answer.json()["detail"]
