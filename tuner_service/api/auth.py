"""Who may call what: one dependency guards every route, HTTP and WebSocket alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import WebSocketException
from starlette.requests import HTTPConnection

from tuner_service.api.dashboard import is_file_of_page
from tuner_service.api.dependencies import services_of
from tuner_service.api.errors import AuthenticationError
from tuner_service.api.own_page import READING_METHODS, cookies_of
from tuner_service.domain.errors import NotAllowedError
from tuner_service.service.access import Role
from tuner_service.service.sessions import OpenSession

# Health checks and the page of the API itself carry nothing of anybody's experiments.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/page.js", "/docs/page.css"})
SIGN_IN = ("POST", "/api/v1/session")  # open to who has a code or a token, which its handler checks
# Whoever may read may do so by a browser, too.
FOR_ADMINS = frozenset({"/api/v1/sessions"})  # where others sign in from is not for everybody who may read
OWN_SESSION = frozenset({("POST", "/api/v1/session-codes"), ("DELETE", "/api/v1/session")})
AGENT_PATHS = "/api/v1/agents/"
POLICY_VIOLATION = 1008  # the WebSocket close code


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request: what they may do, and the session of their browser if they sent its cookie."""

    role: Role
    session: OpenSession | None = None


def is_open(method: str, path: str) -> bool:
    """Whether it is answered to anybody: nothing of anybody's experiments, or the way in."""
    if method in READING_METHODS and is_file_of_page(path):
        return True
    return path in OPEN_PATHS or (method, path) == SIGN_IN


async def authorize(connection: HTTPConnection) -> None:
    """Lets the connection pass, or raises: 401 without a known token, 403 with one that may not do this."""
    if is_open(connection.scope.get("method", ""), connection.url.path):
        return
    try:
        check_role(role_of(connection), connection)
    except NotAllowedError as exc:
        if connection.scope["type"] == "websocket":
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
        token = token_of(connection)
        role = None if token is None else services.tokens.role_of(token)
        return None if role is None else Caller(role=role)
    if connection.scope["type"] != "http":
        return None
    for secret in cookies_of(connection.headers, services.sessions.cookie_name):
        session = services.sessions.find(secret, address_of(connection))
        if session is not None:
            return Caller(role=session.role, session=session)
    return None


def address_of(connection: HTTPConnection) -> str | None:
    """Of who sends; of a proxy where the server does not trust what that says."""
    return None if connection.client is None else connection.client.host


def role_of(connection: HTTPConnection) -> Role | None:
    """None without a known token and without an open session."""
    caller = caller_of(connection)
    return None if caller is None else caller.role


def is_still_allowed(connection: HTTPConnection) -> Callable[[], bool]:
    """Asks later whether who sent this request, which was let pass, would be let pass still."""
    caller, sessions = caller_of(connection), services_of(connection).sessions
    session = None if caller is None else caller.session
    return lambda: session is None or sessions.is_open(session)


def check_role(role: Role | None, connection: HTTPConnection) -> None:
    if role is None:
        raise AuthenticationError(
            "no valid token; send the header `Authorization: Bearer TOKEN` "
            "with the token of the service's home folder (HOME/token)"
        )
    if connection.scope["type"] == "websocket":
        allowed = role in {Role.ADMIN, Role.AGENT}
    elif _is_for_readers(connection.scope["method"], connection.url.path):
        allowed = role in {Role.ADMIN, Role.READ_ONLY}
    else:
        allowed = role is Role.ADMIN
    if not allowed:
        raise NotAllowedError(f"a token with the role {role.value} may not do this")


def _is_for_readers(method: str, path: str) -> bool:
    return (method in READING_METHODS and path not in FOR_ADMINS) or (method, path) in OWN_SESSION
