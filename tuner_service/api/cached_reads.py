"""Reads that people and dashboards repeat: declared at their routes, and answered without the framework's way to them.

``@cached_read()`` between a route and its handler is the whole declaration: the pattern of the path, the types of its
parts and the handler are read from the route. The framework's way to a handler (routing, dependencies, validation of
parameters) costs more than most of these handlers do, so a declared read is called straight wherever that way could
change nothing: it has no query, its path is valid as it is, and its token was checked.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope

from tuner_service.api.dependencies import services_of
from tuner_service.api.errors import domain_problem, runtime_problem
from tuner_service.domain.errors import TunerServiceError

PATHS_REMEMBERED = 1_000  # with the read that each belongs to
LONGEST_PATH = 256  # characters; in a longer one some part is not valid, and it is not remembered
CACHED = "cached_read"  # by which of these marks a handler is declared
BY_EVENT = "shared_by_event"
Handler = TypeVar("Handler", bound=Callable[..., Any])


def cached_read(*, by_role: bool = False) -> Callable[[Handler], Handler]:
    """Declares that equal ``GET`` requests for this handler may share one answer until the next commit.

    For reads of rows and of nothing that takes long. ``by_role``: the answer depends on the role of the token.
    """

    return _declared(CACHED, by_role=by_role)


def shared_by_event(*, by_role: bool = False) -> Callable[[Handler], Handler]:
    """Declares that equal ``GET`` requests which name an event may share one answer that has everything up to it.

    For reads of one experiment: whatever else they show, that no commit of the runner changes, may be a second old.
    """

    return _declared(BY_EVENT, by_role=by_role)


def _declared(mark: str, *, by_role: bool) -> Callable[[Handler], Handler]:
    def declare(handler: Handler) -> Handler:
        setattr(handler, mark, by_role)
        return handler

    return declare


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRead:
    """One declared route. ``parts`` validate those of its path by their names."""

    pattern: re.Pattern[str]
    parts: Mapping[str, TypeAdapter[Any]]
    handler: Callable[..., Any]
    takes_request: bool
    takes_services: bool
    by_role: bool
    route: str  # the template of its path


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRead:
    """The read that a path names. ``arguments`` are the parts of the path, None where one of them is not valid."""

    read: CachedRead
    arguments: Mapping[str, Any] | None

    @property
    def by_role(self) -> bool:
        return self.read.by_role

    @property
    def route(self) -> str:
        return self.read.route

    async def answer(self, scope: Scope, receive: Receive) -> Response | None:
        """What the application answers to this ``GET`` of somebody who may read; None where only it can tell."""
        if self.arguments is None or scope["query_string"]:
            return None
        read, request, arguments = self.read, Request(scope, receive), dict(self.arguments)
        if read.takes_request:
            arguments["request"] = request
        if read.takes_services:
            arguments["services"] = services_of(request)
        try:
            if inspect.iscoroutinefunction(read.handler):
                response = await read.handler(**arguments)
            else:
                response = await run_in_threadpool(read.handler, **arguments)
        except TunerServiceError as exc:
            response = domain_problem(exc)
        except RuntimeError as exc:
            response = runtime_problem(exc)
        assert isinstance(response, Response)  # noqa: S101  # every handler returns one
        return response


class CachedReads:
    """Those that the routes of ``routers`` declare by ``mark``."""

    def __init__(self, routers: Iterable[APIRouter], mark: str = CACHED) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._reads = tuple(_read_of(route, mark) for route in routes if hasattr(route.endpoint, mark))
        self._remembered = lru_cache(maxsize=PATHS_REMEMBERED)(self._find)

    def find(self, path: str) -> FoundRead | None:
        """The read that ``path`` names; None where it names another route or none."""
        return self._remembered(path) if len(path) <= LONGEST_PATH else None

    def _find(self, path: str) -> FoundRead | None:
        for read in self._reads:
            if (found := read.pattern.fullmatch(path)) is not None:
                return FoundRead(read=read, arguments=_arguments(read, found.groupdict()))
        return None


def _arguments(read: CachedRead, given: Mapping[str, str]) -> Mapping[str, Any] | None:
    try:
        return {name: read.parts[name].validate_python(text) for name, text in given.items()}
    except ValidationError:
        return None


def _read_of(route: APIRoute, mark: str) -> CachedRead:
    parameters = inspect.signature(route.endpoint, eval_str=True).parameters
    in_path = set(route.param_convertors)
    for name, parameter in parameters.items():
        if name not in in_path | {"request", "services"} and parameter.default is inspect.Parameter.empty:
            raise TypeError(f"{route.path}: a cached read is called without a query, and {name!r} has no default")
    return CachedRead(
        pattern=route.path_regex,
        parts={name: TypeAdapter(parameters[name].annotation) for name in in_path},
        handler=route.endpoint,
        takes_request="request" in parameters,
        takes_services="services" in parameters,
        by_role=getattr(route.endpoint, mark),
        route=route.path,
    )
