"""Who may call what: one dependency guards every route, HTTP and WebSocket alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from fastapi import WebSocketException
from starlette.requests import HTTPConnection

from tuner_service.api.dashboard import is_file_of_page
from tuner_service.api.dependencies import services_of
from tuner_service.api.errors import AuthenticationError
from tuner_service.api.own_page import READING_METHODS, cookies_of
from tuner_service.domain.errors import NotAllowedError
from tuner_service.service.access import PEOPLE, SENDER, Role
from tuner_service.service.sessions import OpenSession
from tuner_service.service.tokens import Token

# Health checks and the page of the API itself carry nothing of anybody's experiments.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/page.js", "/docs/page.css"})
SIGN_IN = ("POST", "/api/v1/session")  # open to who has a code or a token, which its handler checks
POLICY_VIOLATION = 1008  # the WebSocket close code


class Access(StrEnum):
    """Who may use a route."""

    ANYBODY = "anybody"
    READ = "read"
    OPERATE = "operate"
    ADMINISTER = "administer"
    AGENT = "agent"  # the one that the path names


# The whole rule. A route of GET is for READ, and one of another method for OPERATE, unless it declares another one.
ROLES: Mapping[Access, frozenset[Role]] = {
    Access.ANYBODY: frozenset(Role),
    Access.READ: PEOPLE,
    Access.OPERATE: frozenset({Role.ADMIN, Role.OPERATOR}),
    Access.ADMINISTER: frozenset({Role.ADMIN}),
    Access.AGENT: frozenset({Role.AGENT}),
}
_MARK = "access"
Handler = TypeVar("Handler", bound=Callable[..., Any])


def allows(access: Access) -> Callable[[Handler], Handler]:
    """Declares, between a route and its handler, who may use it, where the method does not say so."""

    def declare(handler: Handler) -> Handler:
        setattr(handler, _MARK, access)
        return handler

    return declare


def access_of(endpoint: Callable[..., Any], method: str) -> Access:
    """Of the route whose handler is ``endpoint``."""
    by_method = Access.READ if method in READING_METHODS else Access.OPERATE
    return Access(getattr(endpoint, _MARK, by_method))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request: by which token, and the session of their browser if they sent its cookie."""

    token: Token
    session: OpenSession | None = None

    @property
    def role(self) -> Role:
        return self.token.role

    @property
    def name(self) -> str:
        """As the journal names who asked for a change."""
        return self.token.name if self.session is None else f"{self.token.name} (session {self.session.stored.id})"


def is_open(method: str, path: str) -> bool:
    """Whether it is answered to anybody: nothing of anybody's experiments, or the way in."""
    if method in READING_METHODS and is_file_of_page(path):
        return True
    return path in OPEN_PATHS or (method, path) == SIGN_IN


async def authorize(connection: HTTPConnection) -> None:
    """Lets the connection pass, or raises: 401 without a known token, 403 with one that may not do this.

    From now on what answers it knows the SENDER.
    """
    access = access_of(connection.scope["endpoint"], connection.scope.get("method", ""))
    if access is Access.ANYBODY:
        return
    try:
        SENDER.set(_checked(caller_of(connection), access, connection).name)
    except NotAllowedError as exc:
        can_say_why = "websocket.http.response" in connection.scope.get("extensions", {})
        if connection.scope["type"] == "websocket" and not can_say_why:
            raise WebSocketException(POLICY_VIOLATION, str(exc)) from exc
        raise


def token_of(connection: HTTPConnection) -> str | None:
    """The bearer token that was sent; None where none was."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def caller_of(connection: HTTPConnection) -> Caller | None:
    """None without a known token and without the cookie of an open session; the guard has seen where that comes from.

    Where a request brings both, its token counts. A browser opens no agent's channel.
    """
    services = services_of(connection)
    if "authorization" in connection.headers:
        secret = token_of(connection)
        token = None if secret is None else services.tokens.find(secret)
        return None if token is None else Caller(token=token)
    if connection.scope["type"] != "http":
        return None
    for secret in cookies_of(connection.headers, services.sessions.cookie_name):
        session = services.sessions.find(secret, address_of(connection))
        if session is not None:
            return Caller(token=session.token, session=session)
    return None


def address_of(connection: HTTPConnection) -> str | None:
    """Of who sends; of a proxy where the server does not trust what that says."""
    return None if connection.client is None else connection.client.host


def role_of(connection: HTTPConnection) -> Role | None:
    """None without a known token and without an open session."""
    caller = caller_of(connection)
    return None if caller is None else caller.role


def sender_of(connection: HTTPConnection) -> str:
    """The name of who sent a request that was let pass."""
    caller = caller_of(connection)
    if caller is None:  # their token was revoked, or their session ended, a moment ago
        raise AuthenticationError("the token or the session of this request is not good any more")
    return caller.name


def is_still_allowed(connection: HTTPConnection) -> Callable[[], bool]:
    """Asks later whether who sent this request, which was let pass, would be let pass still."""
    caller, services = caller_of(connection), services_of(connection)
    if caller is None:  # it ended a moment ago
        return lambda: False
    token, session = caller.token, caller.session
    if session is None:
        return lambda: services.tokens.is_good(token)
    return lambda: services.sessions.is_open(session)


def _checked(caller: Caller | None, access: Access, connection: HTTPConnection) -> Caller:
    if caller is None:
        raise AuthenticationError(
            "no valid token; send the header `Authorization: Bearer TOKEN` with the token of the service's home folder "
            "(HOME/token), or one that `tuner token add` made and that was not revoked since"
        )
    if caller.role not in ROLES[access]:
        who = "agents" if access is Access.AGENT else " and ".join(sorted(role.value for role in ROLES[access]))
        raise NotAllowedError(f"a token with the role {caller.role.value} may not do this; it is for {who}")
    named = connection.path_params.get("agent_id")
    if access is Access.AGENT and caller.token.agent_id != named:
        raise NotAllowedError(f"the token {caller.token.name!r} is for agent {caller.token.agent_id!r} alone")
    return caller
