"""Who may call what: one dependency guards every route, HTTP and WebSocket alike."""

from __future__ import annotations

from fastapi import WebSocketException
from starlette.requests import HTTPConnection

from tuner_service.api.dependencies import services_of
from tuner_service.api.errors import AuthenticationError
from tuner_service.domain.errors import NotAllowedError
from tuner_service.service.access import Role

# Health checks and the page of the API itself carry nothing of anybody's experiments.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/version", "/openapi.json", "/docs", "/docs/page.js", "/docs/page.css"})
AGENT_PATHS = "/api/v1/agents/"
READING_METHODS = frozenset({"GET", "HEAD"})
POLICY_VIOLATION = 1008  # the WebSocket close code


async def authorize(connection: HTTPConnection) -> None:
    """Lets the connection pass, or raises: 401 without a known token, 403 with one that may not do this."""
    path = connection.url.path
    if path in OPEN_PATHS:
        return
    try:
        check_role(role_of(connection), connection)
    except NotAllowedError as exc:
        if connection.scope["type"] == "websocket":
            raise WebSocketException(POLICY_VIOLATION, str(exc)) from exc
        raise


def role_of(connection: HTTPConnection) -> Role | None:
    """None without a known token."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    return services_of(connection).tokens.role_of(token.strip())


def check_role(role: Role | None, connection: HTTPConnection) -> None:
    if role is None:
        raise AuthenticationError(
            "no valid token; send the header `Authorization: Bearer TOKEN` "
            "with the token of the service's home folder (HOME/token)"
        )
    if connection.scope["type"] == "websocket":
        allowed = role in {Role.ADMIN, Role.AGENT}
    elif connection.scope["method"] in READING_METHODS:
        allowed = role in {Role.ADMIN, Role.READ_ONLY}
    else:
        allowed = role is Role.ADMIN
    if not allowed:
        raise NotAllowedError(f"a token with the role {role.value} may not do this")
