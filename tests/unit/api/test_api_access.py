"""Who gets in: every route × method, hosts, origins, and what every answer carries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, a_body, an_api_service
from tuner_service.api.auth import OPEN_PATHS, SIGN_IN, Access, is_open
from tuner_service.api.described.operations import HEADERS
from tuner_service.service.access import Role

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def routes(api: ApiService) -> Iterator[tuple[str, str]]:
    """Each method and path of the application, with parameters filled in."""
    for path, operations in api.client.app.openapi()["paths"].items():
        filled = path.replace("{experiment_id}", "e").replace("{number}", "1").replace("{digest}", "d")
        filled += "?timeout=0" if path.endswith("/events") else ""  # else it would never end
        for method in operations:
            yield method.upper(), filled


def table(api: ApiService) -> dict[tuple[str, str], Access]:
    """Who may use each of ``routes``, as the routes declare it."""
    declared = (
        Access(operation["x-access"])
        for operations in api.client.app.openapi()["paths"].values()
        for operation in operations.values()
    )
    return dict(zip(routes(api), declared, strict=True))


def all_routes(found: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Those of an application, of the routers that it includes too."""
    for route in found:
        router = getattr(route, "original_router", None)
        if router is None:
            yield route
        else:
            yield from all_routes(router.routes)


def test_every_route_is_described_so_that_the_next_tests_see_all_of_them(api: ApiService) -> None:
    described = set(api.client.app.openapi()["paths"])
    pages = {"/docs", "/docs/{name}", "/openapi.json"}
    of_agents = {"/api/v1/agents/{agent_id}/files/{area}/{path}"}  # as their channel: described in the protocol

    those = [route for route in all_routes(api.client.app.routes) if isinstance(route, APIRoute)]
    found = {route.path.replace(":path}", "}") for route in those}

    assert found - pages - of_agents == described


@pytest.mark.parametrize("token", [None, "wrong", "", ADMIN_TOKEN[:-1], ADMIN_TOKEN + "x", "é"])
def test_without_a_known_token_only_the_open_paths_answer(api: ApiService, token: str | None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}".encode()}
    client = api.as_role(None)

    for method, path in routes(api):
        answer = client.request(method, path, headers=headers)
        if (method, path) == SIGN_IN:
            assert answer.status_code == 403  # from no page of the service
        elif path in OPEN_PATHS:
            assert answer.status_code == 200, (method, path)
        else:
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_read_only_token_reads_and_changes_nothing(api: ApiService) -> None:
    client = api.as_role(READ_ONLY_TOKEN)

    for method, path in routes(api):
        answer = client.request(method, path)
        may = table(api)[method, path] in {Access.READ, Access.ANYBODY} and (method, path) != SIGN_IN
        assert (answer.status_code != 403) == may, (method, path, answer.text)
    assert api.runner.commands == []


def test_an_agents_token_opens_nothing_of_people(api: ApiService) -> None:
    client = api.as_role(AGENT_TOKEN)

    refused = {(method, path) for method, path in routes(api) if client.request(method, path).status_code == 403}

    assert refused == {(method, path) for method, path in routes(api) if path not in OPEN_PATHS}


def test_what_routes_declare_to_be_open_is_what_the_guard_before_them_takes_for_open(api: ApiService) -> None:
    declared = {(method, path) for (method, path), access in table(api).items() if access is Access.ANYBODY}

    assert declared == {(method, path) for method, path in routes(api) if is_open(method, path)}


def test_another_scheme_than_bearer_is_no_token(api: ApiService) -> None:
    answer = api.as_role(None).get("/api/v1/experiments", headers={"authorization": f"Basic {ADMIN_TOKEN}"})

    assert answer.status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "localhost@evil.example", "local host", "[::1", "a:b:c"]
)
def test_a_request_under_a_name_that_is_not_ours_is_refused(api: ApiService, host: str) -> None:
    answer = api.client.get("/healthz", headers={"host": host})

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:80", "10.0.0.7", "tuner.lan"])
def test_our_own_names_and_addresses_are_taken(host: str) -> None:
    api = an_api_service(allowed_hosts=("tuner.lan",))

    assert api.client.get("/healthz", headers={"host": host}).status_code == 200


def test_pages_of_other_origins_may_not_call(api: ApiService) -> None:
    foreign = {"origin": "https://evil.example"}

    assert api.client.post("/api/v1/experiments", json=a_body(), headers=foreign).status_code == 403
    assert api.client.post("/api/v1/experiments", json=a_body(), headers={"origin": "null"}).status_code == 403
    assert api.runner.commands == []


def test_our_own_origin_and_allowed_ones_may_call() -> None:
    api = an_api_service(allowed_origins=("https://dash.example",))

    for origin in ("http://localhost", "https://dash.example"):
        assert api.client.get("/api/v1/experiments", headers={"origin": origin}).status_code == 200


def test_every_answer_carries_the_security_headers(api: ApiService) -> None:
    for answer in (api.client.get("/healthz"), api.client.get("/nowhere"), api.as_role(None).get("/api/v1/agents")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe-inline" not in answer.headers["content-security-policy"]


def test_readiness_tells_the_trouble_only_to_those_with_a_token(api: ApiService) -> None:
    api.runner.trouble["database"] = "the disk is full"

    known, unknown = api.client.get("/readyz"), api.as_role(None).get("/readyz")

    assert (known.status_code, known.json()["parts"]["database"]) == (503, "the disk is full")
    assert (unknown.status_code, unknown.json()["parts"]["database"]) == (503, "in trouble")


def test_what_will_be_a_trouble_is_said_to_those_with_a_token_and_is_none_yet(api: ApiService) -> None:
    api.warnings["certificate"] = "it ends in 9 days"

    known, unknown = api.client.get("/readyz"), api.as_role(None).get("/readyz")

    assert (known.status_code, known.json()["warnings"]) == (200, {"certificate": "it ends in 9 days"})
    assert (unknown.status_code, unknown.json()["warnings"]) == (200, {})


def test_the_page_of_the_api_loads_nothing_from_elsewhere(api: ApiService) -> None:
    page = api.as_role(None).get("/docs")
    parts = [api.as_role(None).get(f"/docs/{name}") for name in ("page.js", "page.css")]

    assert page.headers["content-type"].startswith("text/html")
    assert all(part.status_code == 200 for part in parts)
    for text in (page.text, *(part.text for part in parts)):
        assert "http://" not in text
        assert "https://" not in text
        assert "<style" not in text


def test_every_error_is_a_problem(api: ApiService) -> None:
    answers = [
        api.client.get("/nowhere"),
        api.client.request("PUT", "/api/v1/experiments"),
        api.client.get("/docs/secret.txt"),
        api.client.get("/api/v1/experiments?limit=0"),
        api.client.get("/api/v1/experiments/none"),
    ]

    assert [answer.status_code for answer in answers] == [404, 405, 404, 422, 404]
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= set(answer.json())


def test_a_mistake_of_ours_is_a_problem_that_gives_nothing_away(api: ApiService) -> None:
    def broken() -> str:
        raise RuntimeError("secret")

    api.services.experiments.new_id = broken

    answer = api.client.post("/api/v1/experiments", json=a_body())

    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


def test_a_sender_who_hangs_up_before_the_body_is_whole_is_no_mistake_of_ours(api: ApiService) -> None:
    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(pieces)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {ADMIN_TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/experiments", "query_string": b"", "headers": headers}
    asyncio.run(api.client.app(scope, receive, send))

    assert sent[0]["status"] == 400


def test_a_reader_is_not_shown_the_values_of_variables(api: ApiService) -> None:
    body = a_body()
    body["trial"]["environment"] = {"KEY": "hunter2", "OTHER": {"secret": "aws"}}
    experiment_id = api.create(body)
    path, reader = f"/api/v1/experiments/{experiment_id}", api.as_role(READ_ONLY_TOKEN)

    for client in (reader, api.client, reader):  # each also after the other's answer was kept
        given = client.get(path).json()["trial"]["environment"]
        if client is reader:
            assert given == {"KEY": None, "OTHER": None}
        else:
            assert given == {"KEY": "hunter2", "OTHER": {"secret": "aws"}}
    for method, route in routes(api):
        answer = reader.request(method, route.replace("/e/", f"/{experiment_id}/"))
        assert "hunter2" not in answer.text, (method, route)


def test_an_operators_changes_are_answered_without_the_values_and_guarded_by_what_it_saw(api: ApiService) -> None:
    body = a_body()
    body["trial"]["environment"] = {"KEY": "hunter2"}
    path = f"/api/v1/experiments/{api.create(body)}"
    secret, _ = api.services.tokens.add("ann", Role.OPERATOR, lasts_s=None, by="home")
    operator = api.as_role(secret)

    seen = operator.get(path)
    guarded = {"if-match": seen.headers["etag"]}
    changed = operator.request("PATCH", path, json={"note": "of ann"}, headers=guarded)
    again = operator.request("PATCH", path, json={"note": "late"}, headers=guarded)
    answers = [operator.post(f"{path}/{verb}") for verb in ("pause", "resume", "clone", "stop")]

    assert (changed.status_code, again.status_code) == (200, 412)
    assert [answer.status_code for answer in answers] == [200, 200, 201, 200]
    for answer in (seen, changed, *answers):
        assert answer.json()["trial"]["environment"] == {"KEY": None}
    assert api.client.get(path).json()["trial"]["environment"] == {"KEY": "hunter2"}


PREFLIGHT = {
    "origin": "https://dash.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def test_a_browser_that_asks_for_a_page_of_an_allowed_origin_is_told_what_it_may() -> None:
    api = an_api_service(allowed_origins=("https://dash.example",))

    asked = api.as_role(None).request("OPTIONS", "/api/v1/experiments", headers=PREFLIGHT)
    read = api.client.get("/api/v1/experiments", headers={"origin": "https://dash.example"})
    refused = api.as_role(None).get("/api/v1/experiments", headers={"origin": "https://dash.example"})

    assert asked.status_code == 204
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    for answer in (asked, read, refused):
        assert answer.headers["access-control-allow-origin"] == "https://dash.example"
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers
    assert (read.status_code, refused.status_code) == (200, 401)


def test_a_page_of_an_allowed_origin_follows_events_and_reads_every_header_that_an_answer_is_described_with() -> None:
    api = an_api_service(allowed_origins=("https://dash.example",))

    asked = api.as_role(None).request("OPTIONS", "/api/v1/events", headers=PREFLIGHT)
    read = api.client.get("/api/v1/experiments", headers={"origin": "https://dash.example"})

    sent = set(asked.headers["access-control-allow-headers"].split(", "))
    assert {"Last-Event-ID", "Range", "If-Match", "Idempotency-Key"} <= sent
    assert "X-Tuner-Page" not in sent, "by it the service knows its own page"
    described = set(HEADERS) - {"Set-Cookie"}  # which no script can read
    assert described | {"X-Tuner-Event", "Retry-After"} <= set(
        read.headers["access-control-expose-headers"].split(", ")
    )


@pytest.mark.parametrize(
    "origin", ["https://dash.example.evil", "http://dash.example", "https://dash.example:8443", "null", "https://evil"]
)
def test_pages_of_every_other_origin_are_told_nothing(origin: str) -> None:
    api = an_api_service(allowed_origins=("https://dash.example",))

    for method in ("OPTIONS", "GET"):
        answer = api.client.request(method, "/api/v1/experiments", headers=PREFLIGHT | {"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
