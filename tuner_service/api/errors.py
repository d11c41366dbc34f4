"""Every error as application/problem+json (RFC 9457): one table from our errors to HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tuner_service.domain.errors import (
    AlreadyThereError,
    AmbiguousError,
    ConflictError,
    Fault,
    IdempotencyConflictError,
    InputError,
    LimitExceededError,
    NotAllowedError,
    NotFoundError,
    NotInstalledError,
    StorageError,
    TunerServiceError,
    UnavailableError,
)

logger = logging.getLogger(__name__)


class AuthenticationError(NotAllowedError):
    """No token, or one that nobody has: the sender may try another."""


PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
STATUS_OF: tuple[tuple[type[TunerServiceError], int, str], ...] = (
    (InputError, 422, "invalid-input"),
    (NotFoundError, 404, "not-found"),
    (IdempotencyConflictError, 422, "idempotency-conflict"),
    (AlreadyThereError, 412, "precondition-failed"),
    (AmbiguousError, 422, "invalid-input"),
    (ConflictError, 409, "conflict"),
    (AuthenticationError, 401, "unauthenticated"),
    (NotAllowedError, 403, "not-allowed"),
    (LimitExceededError, 413, "limit-exceeded"),
    (UnavailableError, 503, "unavailable"),
    (NotInstalledError, 501, "not-installed"),
    (StorageError, 503, "storage"),
)
HEADERS_OF = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": str(RETRY_AFTER_S)}}
NO_THREAD = "can't start new thread"  # as Python says it
MAX_FAULTS = 200  # named in one answer; the rest is counted
# Python 3.13 calls these otherwise than the versions before. `type` of a problem is made of it, on which clients rely.
TITLES = {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}


def title_of(status: int) -> str:
    """The same with every version of Python."""
    return TITLES.get(status) or HTTPStatus(status).phrase


def kind_of(status: int) -> str:
    """What a problem is called by its status alone."""
    return title_of(status).lower().replace(" ", "-")


def problem(
    status: int,
    detail: str,
    *,
    kind: str = "",
    more: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    kind, title = kind or kind_of(status), title_of(status)
    body = {"type": f"urn:tuner:problem:{kind}", "title": title, "status": status, "detail": detail, **(more or {})}
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    return Response(data, status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers or {}))


def faults_problem(faults: Sequence[Fault], *, status: int = 422) -> Response:
    errors = [{"pointer": fault.pointer, "detail": fault.message} for fault in faults[:MAX_FAULTS]]
    count = len(faults)
    detail = "1 thing is wrong with the request" if count == 1 else f"{count} things are wrong with the request"
    return problem(status, detail, kind="invalid-input", more={"errors": errors})


def domain_problem(exc: TunerServiceError) -> Response:
    if isinstance(exc, InputError):
        return faults_problem(exc.faults)
    for cls, status, kind in STATUS_OF:
        if isinstance(exc, cls):
            more = {"allowed": list(exc.allowed)} if isinstance(exc, ConflictError) and exc.allowed else None
            return problem(status, str(exc), kind=kind, more=more, headers=HEADERS_OF.get(status))
    logger.error("request_failed", extra={"error": exc}, exc_info=exc)
    return problem(500, "the service made a mistake; its log has the details", kind="internal")


def runtime_problem(exc: RuntimeError) -> Response:
    """Where this process may have no more threads, nobody made a mistake. Any other one is raised again."""
    if str(exc) != NO_THREAD:
        raise exc
    logger.error("no_thread_can_be_started")
    detail = (
        "the service can start no thread now: its user or its container has as many as it may, or no memory for one; "
        "see `ulimit -u` and the container's limits. Look whether what was asked for was done, and try again"
    )
    return problem(503, detail, kind="unavailable", headers=HEADERS_OF[503])


async def _on_domain_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, TunerServiceError)  # noqa: S101  # registered for this class only
    return domain_problem(exc)


async def _on_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)  # noqa: S101  # registered for this class only
    detail = exc.detail
    if exc.status_code == 404 and detail == "Not Found":
        detail = "there is no such path; the page at /docs lists them"
    if exc.status_code == 405:
        detail = f"this path does not take {request.method}; the page at /docs says what it takes"
        return problem(405, detail, headers={"Allow": ", ".join(_methods_of(request))})
    return problem(exc.status_code, detail, headers=exc.headers)


def _methods_of(request: Request) -> list[str]:
    """All that the path takes: the router tells those of the first route only. Of `/store` and `/{name}` the first."""
    path = request.scope["path"]
    matching = [route for route in request.app.state.routes if route.path_regex.match(path)]
    fewest = min((len(route.param_convertors) for route in matching), default=0)
    routes = [route for route in matching if len(route.param_convertors) == fewest]
    methods = {method for route in routes for method in route.methods}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


async def _on_request_error(_: Request, exc: Exception) -> Response:
    """Path and query parameters; bodies are checked in bodies.py."""
    assert isinstance(exc, RequestValidationError)  # noqa: S101  # registered for this class only
    faults = [
        Fault(pointer="/" + "/".join(str(part) for part in error["loc"]), message=error["msg"])
        for error in exc.errors()
    ]
    return faults_problem(faults)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """Whoever sent the body has hung up, so that nobody reads this."""
    return problem(400, "the body ended before it was whole")


async def _on_runtime_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, RuntimeError)  # noqa: S101  # registered for this class only
    return runtime_problem(exc)


async def _on_bug(_: Request, __: Exception) -> Response:
    return problem(500, "the service made a mistake; its log has the details", kind="internal")


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(TunerServiceError, _on_domain_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_request_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(RuntimeError, _on_runtime_error)
    app.add_exception_handler(Exception, _on_bug)
