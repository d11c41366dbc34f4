"""Every route × method × kind of token: who gets in, and that nobody else does, by HTTP and by an agent's channel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tests.api_service import ADMIN_TOKEN, READ_ONLY_TOKEN, ApiService, an_api_service
from tests.unit.api.test_api_access import METHODS, routes, table
from trials.wire.remote_files import DIGEST, LOOK, OFFSET, SIZE
from tuner_service.api.auth import OPEN_PATHS, ROLES, SIGN_IN, Access
from tuner_service.service.access import Role

OWN, OTHER = "gpu-1", "gpu-2"
AREAS = ("assets", "staging", "checkpoints", "own", "logs", "secrets", "none")
UNKNOWN = 401
REFUSED = 403


@dataclass(frozen=True, kw_only=True)
class Kind:
    """``role`` None: it opens nothing."""

    token: str | None
    role: Role | None


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def kinds(api: ApiService) -> dict[str, Kind]:
    tokens = api.services.tokens

    def made(name: str, role: Role, lasts_s: float | None = None) -> str:
        return tokens.add(name, role, lasts_s=lasts_s, by="home")[0]

    found = {
        "none": Kind(token=None, role=None),
        "wrong": Kind(token="x" * 43, role=None),
        "read-only": Kind(token=made("reader", Role.READ_ONLY), role=Role.READ_ONLY),
        "read-only of the home": Kind(token=READ_ONLY_TOKEN, role=Role.READ_ONLY),
        "operator": Kind(token=made("operator", Role.OPERATOR), role=Role.OPERATOR),
        "admin": Kind(token=made("admin", Role.ADMIN), role=Role.ADMIN),
        "admin of the home": Kind(token=ADMIN_TOKEN, role=Role.ADMIN),
        "an agent's": Kind(token=made(OWN, Role.AGENT), role=Role.AGENT),
        "another agent's": Kind(token=made(OTHER, Role.AGENT), role=Role.AGENT),
    }
    for name, role in (("admin", Role.ADMIN), ("agent", Role.AGENT)):
        found |= {
            f"expired, of {name}": Kind(token=made(f"expired-{name}", role, lasts_s=60.0), role=None),
            f"revoked, of {name}": Kind(token=made(f"revoked-{name}", role), role=None),
            f"exchanged, of {name}": Kind(token=made(f"exchanged-{name}", role), role=None),
        }
        tokens.revoke(f"revoked-{name}")
        tokens.rotate(f"exchanged-{name}", lasts_s=None, by="home")
    api.clock.at += 61.0
    return found


def test_each_kind_of_token_opens_the_routes_of_its_role_and_no_other(api: ApiService) -> None:
    declared = table(api)
    for name, kind in kinds(api).items():
        client = api.as_role(kind.token)
        for method, path in routes(api):
            if (method, path) == SIGN_IN or path in OPEN_PATHS:
                continue
            status = client.request(method, path).status_code
            if kind.role is None:
                assert status == UNKNOWN, (name, method, path)
            elif kind.role in ROLES[declared[method, path]]:
                assert status not in {UNKNOWN, REFUSED}, (name, method, path, status)
            else:
                assert status == REFUSED, (name, method, path, status)


def test_a_method_that_a_route_has_not_does_nothing_whoever_sends_it(api: ApiService) -> None:
    found: dict[str, set[str]] = {}
    for method, path in routes(api):
        found.setdefault(path, set()).add(method)
    for token in (None, ADMIN_TOKEN, kinds(api)["an agent's"].token):
        client = api.as_role(token)
        for path, methods in found.items():
            if path == "/api/v1/experiments/collect":  # with other methods it is an experiment of that name
                continue
            for method in {*METHODS, "TRACE", "CONNECT", "PROPFIND"} - methods:
                status = client.request(method, path).status_code
                assert 400 <= status < 500, (token, method, path, status)
    assert api.runner.commands == []


def test_an_agents_files_are_for_its_own_token_alone(api: ApiService) -> None:
    requests: list[tuple[str, dict[str, str]]] = [
        ("GET", {}),
        ("GET", {LOOK: "1"}),
        ("GET", {SIZE: "1", DIGEST: "a" * 64}),
        ("PUT", {SIZE: "1", DIGEST: "a" * 64, OFFSET: "0"}),
        ("DELETE", {}),
        ("POST", {}),
        ("PATCH", {}),
    ]
    for name, kind in kinds(api).items():
        client = api.as_role(kind.token)
        for area in AREAS:
            for method, headers in requests:
                path = f"/api/v1/agents/{OWN}/files/{area}/x"
                status = client.request(method, path, headers={**client.headers, **headers}, content=b"x").status_code
                if method not in {"GET", "PUT"}:
                    assert status in {UNKNOWN, REFUSED, 405}, (name, method, area, status)
                elif kind.role is None:
                    assert status == UNKNOWN, (name, method, area, status)
                elif name == "an agent's":  # nobody's trial runs there: its own files are refused by whose they are
                    assert status in {REFUSED, 404, 422}, (name, method, area, status)
                else:
                    assert status == REFUSED, (name, method, area, status)


@pytest.mark.parametrize("agent_id", [OWN, "", ".", "..", "local", f"{OWN}%2F..%2F{OTHER}", "x" * 300])
def test_a_channel_is_opened_by_the_token_of_its_agent_alone(api: ApiService, agent_id: str) -> None:
    for name, kind in kinds(api).items():
        for can_say_why in (True, False):
            first = asyncio.run(opened(api, agent_id, kind.token, can_say_why=can_say_why))
            if name == "an agent's" and agent_id == OWN:
                assert first["type"] == "websocket.accept"
            else:
                assert first["type"] in {"websocket.close", "websocket.http.response.start"}, (name, agent_id)
                assert first.get("status", REFUSED) in {UNKNOWN, REFUSED, 404}, (name, agent_id)


async def opened(api: ApiService, agent_id: str, token: str | None, *, can_say_why: bool) -> dict[str, Any]:
    """The first that the application says to who opens the channel of an agent."""
    sent: list[dict[str, Any]] = []
    coming = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}])

    async def receive() -> dict[str, Any]:
        return next(coming)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost")]
    headers += [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    path = f"/api/v1/agents/{agent_id}/channel"
    scope: dict[str, Any] = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
        "subprotocols": [], "client": ("10.0.0.9", 1),
        "extensions": {"websocket.http.response": {}} if can_say_why else {},
    }  # fmt: skip
    try:
        await api.client.app(scope, receive, send)
    except AssertionError:  # the hub of these tests has no channels; whoever comes so far was let in
        assert sent[0]["type"] == "websocket.accept"
    return sent[0]


def test_a_route_for_agents_is_for_no_person(api: ApiService) -> None:
    assert not {Role.ADMIN, Role.OPERATOR, Role.READ_ONLY} & ROLES[Access.AGENT]
    assert all(
        Role.AGENT not in roles for access, roles in ROLES.items() if access not in {Access.AGENT, Access.ANYBODY}
    )
