"""What a person wants of a node, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tuner_service.api.auth import Access, allows
from tuner_service.api.bodies.reading import read_as
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, tagged_response
from tuner_service.api.routes.matching import matched
from tuner_service.dispatcher.commands import NodeRemoved
from tuner_service.domain.errors import NotFoundError
from tuner_service.service.experiments import Services
from tuner_service.service.nodes import node_views, running_on
from tuner_service.service.views import View

router = APIRouter(prefix="/api/v1/agents", tags=["devices"])
AgentName = Annotated[str, Path(min_length=1, max_length=128)]


@router.get("/{agent_id}")
def read_agent(request: Request, agent_id: AgentName, services: CurrentServices) -> Response:
    """One node: what it has, how it stands, and what runs there."""
    return tagged_response(request, _found(services, agent_id))


@router.post("/{agent_id}/drain", status_code=204)
@allows(Access.ADMINISTER)
async def drain_agent(
    request: Request, agent_id: AgentName, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Nothing more is started there; its trials save, leave, go on elsewhere, uncharged. 503 if away or silent."""
    await read_as(request, NothingBody, optional=True)
    async with _matched(agent_id, services, if_match):
        await services.hub.drain(agent_id, on=True)
    return Response(status_code=204)


@router.delete("/{agent_id}/drain", status_code=204)
@allows(Access.ADMINISTER)
async def cancel_drain(agent_id: AgentName, services: CurrentServices, *, if_match: IfMatch = None) -> Response:
    """Trials are started there again, once its agent says so. 503 while it is away, or does not answer."""
    async with _matched(agent_id, services, if_match):
        await services.hub.drain(agent_id, on=False)
    return Response(status_code=204)


@router.delete("/{agent_id}", status_code=204)
@allows(Access.ADMINISTER)
async def remove_agent(
    agent_id: AgentName,
    services: CurrentServices,
    *,
    force: Annotated[
        bool, Query(description="though trials run there: they are lost there, and go on elsewhere")
    ] = False,
    if_match: IfMatch = None,
) -> Response:
    """The node is not waited for any more. 409 while trials run there. Its token stays good: revoke it, too."""
    experiments = services.experiments
    async with _matched(agent_id, services, if_match):
        removed = NodeRemoved(at=experiments.clock.now(), agent_id=agent_id, force=force)
        await experiments.submit(removed, then=lambda: services.hub.hang_up(agent_id))
    return Response(status_code=204)


@asynccontextmanager
async def _matched(agent_id: str, services: Services, if_match: str | None) -> AsyncIterator[None]:
    """NotFoundError where nothing is known of it: no connection and no trial. 412 where it is another than was seen."""
    await asyncio.to_thread(_found, services, agent_id)
    async with matched(services, if_match, lambda: _found(services, agent_id), f"agent {agent_id}"):
        yield


def _found(services: Services, agent_id: str) -> View:
    channels = [channel for channel in services.hub.channels() if channel.hello.agent_id == agent_id]
    trials = running_on(services.queries.all_live_attempts()).get(agent_id, [])
    if not channels and not trials:
        raise NotFoundError("agent", agent_id, "`tuner agent ls` lists those there are")
    return node_views(channels, {agent_id: trials} if trials else {})[0]
