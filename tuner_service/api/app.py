"""The HTTP application: routes, guards and error answers put together."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from tuner_service.api import agents
from tuner_service.api.answers_by_event import AnswersByEvent
from tuner_service.api.auth import authorize
from tuner_service.api.bodies.reading import LargeBodies
from tuner_service.api.cached_reads import BY_EVENT, CACHED, CachedReads
from tuner_service.api.dashboard import Dashboard
from tuner_service.api.dependencies import refuse_unknown_query
from tuner_service.api.errors import install_error_handlers
from tuner_service.api.guard import ChannelsInTurn, Guard, HeadAsGet
from tuner_service.api.hanging import refuse_changes_that_would_hang
from tuner_service.api.made_files import MadeFiles
from tuner_service.api.measured import MeasuredRequests, note_matched_route
from tuner_service.api.openapi import describe
from tuner_service.api.prometheus import Exposition
from tuner_service.api.response_cache import ResponseCache
from tuner_service.api.routes import (
    analyses,
    asking,
    assets,
    devices,
    events,
    experiments,
    export,
    figures,
    live_changes,
    node_files,
    nodes,
    retention,
    sessions,
    system,
    table,
    tokens,
    trial_files,
    trials,
)
from tuner_service.api.single_flight import SingleFlight
from tuner_service.service.experiments import Services
from tuner_service.service.measures import RequestMeasures

DESCRIPTION = "Start, watch, stop and resume hyperparameter searches. Every error is application/problem+json."
# Looked through in this order: what open pages ask for again and again is found first.
ROUTERS = (
    table.router,
    analyses.router,
    assets.router,
    experiments.router,
    retention.router,
    live_changes.router,
    asking.router,
    export.router,
    figures.router,
    trials.router,
    trial_files.router,
    agents.router,
    devices.router,
    events.router,
    sessions.router,
    tokens.router,
    system.router,
    node_files.router,
    nodes.router,
    live_changes.trial_router,
)
_SCHEMAS: dict[str, dict[str, Any]] = {}  # by version


@cache
def _whole() -> APIRouter:
    """All routes, of every application of this process: what FastAPI derives from a route holds nothing of a service.

    It derives it when a route is first asked for, which takes longer than all else of an application; a standby that
    takes over has done so already.
    """
    whole = APIRouter(
        dependencies=[
            Depends(note_matched_route),
            Depends(authorize),
            Depends(refuse_unknown_query),
            Depends(refuse_changes_that_would_hang),
        ],
        generate_unique_id_function=lambda route: route.name,  # by which generated clients name their functions
    )
    for router in ROUTERS:
        whole.include_router(router)
    return whole


@cache
def _reads(mark: str) -> CachedReads:
    return CachedReads(ROUTERS, mark)


def create_app(services: Services) -> FastAPI:
    """``services`` must outlive the application; it starts and stops nothing of them."""
    app = FastAPI(
        title="Tuner Service",
        version=services.version,
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's own pages load from elsewhere; /docs is ours and works offline
        redoc_url=None,
        routes=_whole().routes,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.routes = tuple(route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    requests = RequestMeasures()
    app.state.exposition = Exposition(services=services, requests=requests)
    app.state.large_bodies = LargeBodies()
    app.state.single_flight = SingleFlight()
    app.state.drawings = SingleFlight()
    app.state.made_files = MadeFiles()
    install_error_handlers(app)
    app.add_middleware(ResponseCache, queries=services.queries, find=_reads(CACHED).find)
    app.add_middleware(AnswersByEvent, commits=services.events, find=_reads(BY_EVENT).find)
    app.add_middleware(Dashboard, opened=services.analyst.prepare)
    app.add_middleware(HeadAsGet)
    app.add_middleware(ChannelsInTurn)
    app.add_middleware(Guard, settings=services.config, cookie_name=services.sessions.cookie_name)
    app.add_middleware(MeasuredRequests, measures=requests)  # the one added last is asked first
    describe(app, ROUTERS, _SCHEMAS)
    return app
