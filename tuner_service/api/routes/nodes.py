"""What a person wants of a node, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tuner_service.api.auth import Access, allows
from tuner_service.api.bodies.reading import read_as
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.dispatcher.commands import NodeRemoved
from tuner_service.domain.errors import NotFoundError
from tuner_service.service.nodes import running_on

router = APIRouter(prefix="/api/v1/agents", tags=["devices"])
AgentName = Annotated[str, Path(min_length=1, max_length=128)]


@router.post("/{agent_id}/drain", status_code=204)
@allows(Access.ADMINISTER)
async def drain_agent(request: Request, agent_id: AgentName, services: CurrentServices) -> Response:
    """Nothing more is started there; its trials save, leave, and go on elsewhere, uncharged. 503 while it is away."""
    await read_as(request, NothingBody, optional=True)
    await _look_for(agent_id, services)
    services.hub.drain(agent_id, on=True)
    return Response(status_code=204)


@router.delete("/{agent_id}/drain", status_code=204)
@allows(Access.ADMINISTER)
async def cancel_drain(agent_id: AgentName, services: CurrentServices) -> Response:
    """Trials are started there again. 503 while it is away."""
    await _look_for(agent_id, services)
    services.hub.drain(agent_id, on=False)
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
) -> Response:
    """The node is not waited for any more. 409 while trials run there. Its token is revoked by itself."""
    await _look_for(agent_id, services)
    experiments = services.experiments
    await experiments.submit(NodeRemoved(at=experiments.clock.now(), agent_id=agent_id, force=force))
    services.hub.hang_up(agent_id)
    return Response(status_code=204)


async def _look_for(agent_id: str, services: CurrentServices) -> None:
    """NotFoundError where nothing is known of it: it is not connected, and no trial runs there."""
    if any(channel.hello.agent_id == agent_id for channel in services.hub.channels()):
        return
    if agent_id not in await asyncio.to_thread(lambda: running_on(services.queries.all_live_attempts())):
        raise NotFoundError("agent", agent_id, "`tuner agent ls` lists those there are")
