"""Every route × method × token × cookie × origin × the page's header: what is answered follows from one rule."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, an_api_service
from tests.unit.api.test_api_access import all_routes
from tuner_service.api.app import ROUTERS
from tuner_service.api.cached_reads import BY_EVENT, CachedReads
from tuner_service.service.access import Role
from tuner_service.service.sessions import SESSION_S

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READING = ("GET", "HEAD")
REFUSED = {401, 403, 405}
LET_IN = 422  # whoever was let in is refused for a parameter that no route has, and so carries nothing out
HOST = "localhost:4711"
# Whoever may use a route, by the names of their tokens: those of the home, and some that were made.
TOKENS = {
    None: None, "wrong": None, "reader": "reader", "admin": "admin", "agent": "agent", "made operator": "operator",
    "made reader": "reader", "made admin": "admin", "made agent": "agent", "expired": None, "revoked": None,
    "rotated": None,
}  # fmt: skip
MADE = {name for name in TOKENS if name not in {None, "wrong", "reader", "admin", "agent"}}
FURTHER_COOKIES = {"operator", "of a revoked token"}
COOKIES = ("none", "admin", "operator", "reader", "revoked", "expired", "of a revoked token")
OWN, OTHER_PORT, FOREIGN = f"http://{HOST}", "http://localhost:4712", "https://evil.example"
ORIGINS = (None, OWN, OTHER_PORT, FOREIGN)
BESIDE = {"/", "/openapi.json"}  # open, and no routes of FastAPI, whose dependencies guard the others
OPEN = {"/", "/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/page.js"}
SIGN_IN = ("POST", "/api/v1/session")
READ_OFTEN = (CachedReads(ROUTERS), CachedReads(ROUTERS, BY_EVENT))
FOR_ADMINS = {
    ("GET", "/api/v1/sessions"), ("DELETE", "/api/v1/sessions"), ("DELETE", "/api/v1/sessions/1"),
    ("GET", "/api/v1/sessions/1"), ("GET", "/api/v1/tokens/1"),
    ("GET", "/api/v1/tokens"), ("POST", "/api/v1/tokens"), ("POST", "/api/v1/tokens/1/rotate"),
    ("POST", "/api/v1/agents/1/drain"), ("DELETE", "/api/v1/agents/1/drain"), ("DELETE", "/api/v1/agents/1"),
    ("DELETE", "/api/v1/tokens/1"), ("PUT", "/api/v1/quota-groups/1"), ("DELETE", "/api/v1/quota-groups/1"),
}  # fmt: skip
OF_ONE_AGENT = {"/api/v1/agents/1/files/1/1"}
READERS_CHANGE = {("POST", "/api/v1/session-codes"), ("DELETE", "/api/v1/session")}


@dataclass(frozen=True, kw_only=True)
class Visit:
    """``methods``: those that its route has."""

    method: str
    path: str
    methods: frozenset[str]
    token: str | None
    cookie: str
    origin: str | None
    from_page: bool

    @property
    def expected(self) -> int:
        """The rule. A cookie is looked at wherever it is sent; a token counts before it."""
        if self.origin not in {None, OWN}:
            return 403
        is_open = self.path in OPEN or (self.method, self.path) == SIGN_IN
        if self.cookie != "none" and not is_open and not self._shows_its_page:
            return 403
        if self.method not in self.methods:
            return 405
        if is_open:
            return LET_IN
        role = TOKENS[self.token] if self.token is not None else self.cookie
        if role not in {"admin", "operator", "reader", "agent"}:
            return 401
        return LET_IN if self._may(role) else 403

    @property
    def _shows_its_page(self) -> bool:
        return self.from_page or (self.origin == OWN and self.method in READING)

    def _may(self, role: str) -> bool:
        method = "GET" if self.method == "HEAD" else self.method
        if self.path in OF_ONE_AGENT:
            return False  # none of these tokens is for the agent "1"
        if (method, self.path) in FOR_ADMINS:
            return role == "admin"
        if method == "GET" or (method, self.path) in READERS_CHANGE:
            return role in {"admin", "operator", "reader"}
        return role in {"admin", "operator"}

    def headers(self, tokens: dict[str, str], cookies: dict[str, str]) -> list[tuple[bytes, bytes]]:
        given = {
            "host": HOST,
            "authorization": None if self.token is None else f"Bearer {tokens[self.token]}",
            "cookie": cookies[self.cookie] or None,
            "origin": self.origin,
            "x-tuner-page": "1" if self.from_page else None,
        }
        return [(name.encode(), value.encode()) for name, value in given.items() if value is not None]


def the_tokens(api: ApiService) -> dict[str, str]:
    """By the names of TOKENS, their secrets."""
    tokens = api.services.tokens

    def made(name: str, role: Role, *, lasts_s: float | None = None) -> str:
        return tokens.add(name, role, lasts_s=lasts_s, by="home")[0]

    found = {
        "wrong": "wrong", "reader": READ_ONLY_TOKEN, "admin": ADMIN_TOKEN, "agent": AGENT_TOKEN,
        "made operator": made("operator", Role.OPERATOR), "made reader": made("reader", Role.READ_ONLY),
        "made admin": made("admin", Role.ADMIN), "made agent": made("gpu-box", Role.AGENT),
        "expired": made("expired", Role.ADMIN, lasts_s=1.0), "revoked": made("revoked", Role.ADMIN),
        "rotated": made("rotated", Role.ADMIN),
    }  # fmt: skip
    tokens.revoke("revoked")
    tokens.rotate("rotated", lasts_s=None, by="home")
    api.clock.at += 1.0
    return found


def the_cookies(api: ApiService, tokens: dict[str, str]) -> dict[str, str]:
    """One that is revoked, one that is expired and one whose token was revoked among them."""
    sessions = api.services.sessions

    def signed_in(token: str) -> tuple[str, str]:
        secret, opened = sessions.open_with_token(token) or ("", None)
        assert opened is not None
        return f"{sessions.cookie_name}={secret}", opened.stored.id

    expired, _ = signed_in(ADMIN_TOKEN)
    api.clock.at += SESSION_S
    revoked, its_id = signed_in(ADMIN_TOKEN)
    assert sessions.end(its_id)
    orphan, _ = signed_in(api.services.tokens.add("gone", Role.ADMIN, lasts_s=None, by="home")[0])
    api.services.tokens.revoke("gone")
    return {
        "none": "", "admin": signed_in(ADMIN_TOKEN)[0], "operator": signed_in(tokens["made operator"])[0],
        "reader": signed_in(READ_ONLY_TOKEN)[0], "revoked": revoked, "expired": expired, "of a revoked token": orphan,
    }  # fmt: skip


def places(api: ApiService) -> Iterator[tuple[str, frozenset[str]]]:
    """Each path of the application with its methods, the page among them. A route of another kind is told apart."""
    routes: list[APIRoute] = []
    for route in all_routes(api.client.app.routes):
        if isinstance(route, APIRoute):
            routes.append(route)
        else:
            is_known = isinstance(route, APIWebSocketRoute) or filled(route) in BESIDE
            assert is_known, f"{route}: say here who may use it"
    for path in BESIDE | {filled(route) for route in routes}:
        methods = {method for route in routes if route.path_regex.match(path) for method in route.methods}
        methods |= set(READING) if path in BESIDE else set()
        yield path, frozenset(methods | ({"HEAD"} if "GET" in methods else set()))


def filled(route: BaseRoute) -> str:
    path = str(getattr(route, "path", ""))
    return re.sub(r"\{[^}]*\}", "1", path.replace("/docs/{name}", "/docs/page.js"))


def visits(api: ApiService) -> Iterator[Visit]:
    """All of them; of methods that a route does not have, which are refused before anybody is asked, some."""
    for (path, methods), method in product(places(api), METHODS):
        if path == "/" and method not in methods:
            continue  # that is no route: what the page does not answer goes on to those that are
        has_it = method in methods
        senders = product(TOKENS, COOKIES) if has_it else product((None, "admin"), ("none", "admin"))
        for (token, cookie), origin in product(senders, ORIGINS):
            if (token in MADE and cookie != "none") or (cookie in FURTHER_COOKIES and token is not None):
                continue  # a token counts before a cookie, whichever they are
            for from_page in (False,) if cookie == "none" else (False, True):
                yield Visit(
                    method=method,
                    path=path,
                    methods=methods,
                    token=token,
                    cookie=cookie,
                    origin=origin,
                    from_page=from_page,
                )


def query_of(visit: Visit) -> bytes:
    """None for what is answered before the routes, where a query would have the routes answer."""
    is_read = visit.method in READING and any(reads.find(visit.path) for reads in READ_OFTEN)
    return b"" if is_read else b"unknown=1"


async def ask(app: Any, scope: dict[str, Any]) -> dict[str, Any]:
    """The first message of the answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect" if scope["type"] == "websocket" else "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"query_string": b"", "client": ("127.0.0.1", 1), "server": ("localhost", 4711), **scope}, receive, send)
    return sent[0]


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def test_every_way_in_follows_the_rule(api: ApiService) -> None:
    tokens, app = the_tokens(api), api.client.app
    cookies = the_cookies(api, tokens)
    wrong, seen = [], set()

    async def walk() -> None:
        for visit in visits(api):
            scope = {
                "type": "http",
                "method": visit.method,
                "path": visit.path,
                "query_string": query_of(visit),
                "headers": visit.headers(tokens, cookies),
            }
            status = (await ask(app, scope))["status"]
            status = status if status in REFUSED else LET_IN  # what is read often is answered before the routes
            seen.add(status)
            if status != visit.expected:
                wrong.append((status, visit.expected, visit))

    asyncio.run(walk())
    assert not wrong, f"{len(wrong)} answers, the first: {wrong[0]}"
    assert seen == {*REFUSED, LET_IN}
    assert api.runner.commands == []
