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
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, an_api_service
from tests.unit.api.test_api_access import all_routes
from tuner_service.api.dependencies import refuse_unknown_query
from tuner_service.service.sessions import SESSION_S

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READING = ("GET", "HEAD")
REFUSED = {401, 403, 405}
LET_IN = 418  # what stands behind the guards answers so here
HOST = "localhost:4711"
TOKENS = {None: None, "wrong": None, READ_ONLY_TOKEN: "reader", ADMIN_TOKEN: "admin", AGENT_TOKEN: "agent"}
COOKIES = ("none", "admin", "reader", "revoked", "expired")
OWN, OTHER_PORT, FOREIGN = f"http://{HOST}", "http://localhost:4712", "https://evil.example"
ORIGINS = (None, OWN, OTHER_PORT, FOREIGN)
BESIDE = {"/", "/openapi.json"}  # open, and no routes of FastAPI, whose dependencies guard the others
OPEN = {"/", "/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/page.js"}
SIGN_IN = ("POST", "/api/v1/session")
ADMINS_READ = {"/api/v1/sessions"}
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
        if role not in {"admin", "reader", "agent"}:
            return 401
        return LET_IN if self._may(role) else 403

    @property
    def _shows_its_page(self) -> bool:
        return self.from_page or (self.origin == OWN and self.method in READING)

    def _may(self, role: str) -> bool:
        if role == "reader":
            reads = self.method in READING and self.path not in ADMINS_READ
            return reads or (self.method, self.path) in READERS_CHANGE
        return role == "admin"

    def headers(self, cookies: dict[str, str]) -> list[tuple[bytes, bytes]]:
        given = {
            "host": HOST,
            "authorization": None if self.token is None else f"Bearer {self.token}",
            "cookie": cookies[self.cookie] or None,
            "origin": self.origin,
            "x-tuner-page": "1" if self.from_page else None,
        }
        return [(name.encode(), value.encode()) for name, value in given.items() if value is not None]


def the_cookies(api: ApiService) -> dict[str, str]:
    """One that is revoked and one that is expired among them."""
    sessions = api.services.sessions

    def signed_in(token: str) -> tuple[str, str]:
        secret, opened = sessions.open_with_token(token) or ("", None)
        assert opened is not None
        return f"{sessions.cookie_name}={secret}", opened.stored.id

    expired, _ = signed_in(ADMIN_TOKEN)
    api.clock.at += SESSION_S
    revoked, its_id = signed_in(ADMIN_TOKEN)
    assert sessions.end(its_id)
    admin, reader = signed_in(ADMIN_TOKEN)[0], signed_in(READ_ONLY_TOKEN)[0]
    return {"none": "", "admin": admin, "reader": reader, "revoked": revoked, "expired": expired}


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
        tokens, cookies = (TOKENS, COOKIES) if has_it else ((None, ADMIN_TOKEN), ("none", "admin"))
        for token, cookie, origin in product(tokens, cookies, ORIGINS):
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
    """Whoever is let in is answered LET_IN by every route, in place of what it does."""

    async def let_in() -> None:
        raise HTTPException(LET_IN)

    api = an_api_service()
    api.client.app.dependency_overrides[refuse_unknown_query] = let_in
    return api


def test_every_way_in_follows_the_rule(api: ApiService) -> None:
    cookies, app = the_cookies(api), api.client.app
    wrong, seen = [], set()

    async def walk() -> None:
        for visit in visits(api):
            scope = {"type": "http", "method": visit.method, "path": visit.path, "headers": visit.headers(cookies)}
            status = (await ask(app, scope))["status"]
            status = status if status in REFUSED else LET_IN  # what is read often is answered before the routes
            seen.add(status)
            if status != visit.expected:
                wrong.append((status, visit.expected, visit))

    asyncio.run(walk())
    assert not wrong, f"{len(wrong)} answers, the first: {wrong[0]}"
    assert seen == {*REFUSED, LET_IN}
    assert api.runner.commands == []
