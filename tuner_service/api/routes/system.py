"""The service about itself: health, readiness, version, algorithms, agents, and the page of its API."""

from __future__ import annotations

import asyncio
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from trials.wire.messages import PROTOCOL_VERSION
from tuner_service.advisors.registry import ADVISORS
from tuner_service.api.auth import Access, allows, role_of
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.prometheus import Exposition
from tuner_service.api.responses import json_response
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.domain.algorithm_options import RegisteredAlgorithm
from tuner_service.domain.errors import NotFoundError
from tuner_service.service.nodes import node_views, running_on
from tuner_service.tuners.registry import TUNERS

router = APIRouter(tags=["service"])
PAGE_FILES = {"index.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}


# Those three answer on the loop itself: however many long reads hold the threads, they do not wait for one.
@router.get("/healthz")
@allows(Access.ANYBODY)
async def read_health(services: CurrentServices) -> Response:
    """The process answers; `pid` tells it from another that took its port."""
    return json_response({"status": "ok", "pid": services.pid})


@router.get("/readyz")
@allows(Access.ANYBODY)
async def read_readiness(request: Request, services: CurrentServices) -> Response:
    """503 while a part is in trouble; with a token: what the trouble is, and what will be one."""
    parts = services.runner.readiness()
    if services.nodes is not None:
        parts["ray"] = services.nodes.readiness()
    is_ready = all(state == "ok" for state in parts.values())
    warnings = services.warnings()
    if role_of(request) is None:
        parts, warnings = {name: "ok" if state == "ok" else "in trouble" for name, state in parts.items()}, {}
    said = {"ready": is_ready, "role": "active", "parts": parts, "warnings": warnings}
    return json_response(said, status=200 if is_ready else 503)


@router.get("/version")
@allows(Access.ANYBODY)
async def read_version(services: CurrentServices) -> Response:
    return json_response({"version": services.version, "api": "v1", "agent_protocols": [PROTOCOL_VERSION]})


@router.get("/metrics")
async def scrape(request: Request, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """What the service counts of itself, for Prometheus; as OpenMetrics where `Accept` names that."""
    exposition = request.app.state.exposition
    assert isinstance(exposition, Exposition)  # noqa: S101  # set by create_app before any request
    # Nothing else is done by that thread: it answers also while reads that take long have all others.
    loop = asyncio.get_running_loop()
    text, content_type = await loop.run_in_executor(exposition.thread, exposition.text, accept)
    return Response(text, headers={"content-type": content_type})


@router.get("/api/v1/agents")
def list_agents(services: CurrentServices) -> Response:
    """The nodes: what each has, how it stands, and what runs there."""
    running = running_on(services.queries.all_live_attempts())
    return json_response({"items": node_views(services.hub.channels(), running), "next": None})


@router.get("/api/v1/executors")
def list_executors(services: CurrentServices) -> Response:
    """Those that bring nodes from elsewhere: what is wanted, what is there, and why the rest is not."""
    items = [] if services.nodes is None else [services.nodes.view()]
    return json_response({"items": items, "next": None})


@router.get("/api/v1/algorithms")
def list_algorithms() -> Response:
    """The tuners, assessors and advisors that have a name, with their options."""
    return json_response(
        {
            "tuners": [_algorithm_view(algorithm) for algorithm in TUNERS.values()],
            "assessors": [_algorithm_view(algorithm) for algorithm in ASSESSORS.values()],
            "advisors": [_algorithm_view(algorithm) for algorithm in ADVISORS.values()],
        }
    )


def _algorithm_view(algorithm: RegisteredAlgorithm) -> dict[str, Any]:
    options = [
        {"name": option.name, "default": option.default, "meaning": option.meaning} for option in algorithm.options
    ]
    return {"name": algorithm.name, "meaning": algorithm.meaning, "options": options}


@router.get("/docs", include_in_schema=False)
@allows(Access.ANYBODY)
def read_page() -> Response:
    return _page_file("index.html")


@router.get("/docs/{name}", include_in_schema=False)
@allows(Access.ANYBODY)
def read_page_file(name: str) -> Response:
    return _page_file(name)


def _page_file(name: str) -> Response:
    if name not in PAGE_FILES:
        raise NotFoundError("file of this page", name)
    data = resources.files("tuner_service.api").joinpath("page", name).read_bytes()
    return Response(data, media_type=PAGE_FILES[name])
