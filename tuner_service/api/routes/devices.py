"""Devices and quota groups over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from tuner_service.api.auth import Access, allows
from tuner_service.api.bodies.quota_groups import QuotaGroupBody
from tuner_service.api.bodies.reading import read_as, takes_body
from tuner_service.api.bodies.schemas import GROUP_NAME, GROUP_WORDS
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, IfNoneMatch, is_for_new_alone, json_response, tagged_response
from tuner_service.api.routes.matching import matched
from tuner_service.dispatcher.commands import QuotaGroupDeleted, QuotaGroupSet
from tuner_service.domain.errors import Fault, InputError, NotFoundError
from tuner_service.domain.resources import DEFAULT_GROUP, QuotaGroup
from tuner_service.service.devices import device_views, group_views
from tuner_service.service.experiments import Services
from tuner_service.service.views import View

router = APIRouter(prefix="/api/v1", tags=["devices"])
GroupName = Annotated[str, Path(min_length=1, max_length=64)]
NewGroupName = Annotated[str, Path(pattern=f"^{GROUP_NAME.pattern}$")]


@router.get("/devices")
def list_devices(services: CurrentServices) -> Response:
    """Of the agents connected now, with the trials that hold them."""
    return json_response({"items": device_views(services.queries, services.hub.devices()), "next": None})


@router.get("/quota-groups")
def list_quota_groups(services: CurrentServices) -> Response:
    """By name, with what their trials hold now."""
    return json_response({"items": group_views(services.queries), "next": None})


@router.get("/quota-groups/{name}")
def read_quota_group(request: Request, name: GroupName, services: CurrentServices) -> Response:
    return tagged_response(request, _found(services, name))


@router.put("/quota-groups/{name}", responses={201: {"description": "it is new", "content": {"application/json": {}}}})
@allows(Access.ADMINISTER)  # what everybody is given their devices by
@takes_body(QuotaGroupBody)
async def set_quota_group(
    request: Request,
    name: NewGroupName,
    services: CurrentServices,
    *,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Make the group, or change it. What its trials hold beyond a lower quota is given back as they end."""
    body = await read_as(request, QuotaGroupBody)
    if GROUP_NAME.fullmatch(name) is None:
        raise InputError([Fault(pointer="", message=f"the name of a group should be {GROUP_WORDS}, got {name!r:.70}")])
    must_be_new = is_for_new_alone(if_none_match)
    quotas = {"gpus": body.gpus, "cpus": body.cpus}
    group = QuotaGroup(name=name, memory_bytes=body.memory, borrows=body.borrows, **quotas)
    experiments = services.experiments
    async with matched(services, if_match, lambda: _found(services, name), f"quota group {name}"):
        is_new = all(group.name != name for group in await asyncio.to_thread(services.queries.quota_groups))
        await experiments.submit(QuotaGroupSet(at=experiments.clock.now(), group=group, must_be_new=must_be_new))
    status = 201 if is_new and name != DEFAULT_GROUP else 200
    return json_response(await asyncio.to_thread(_found, services, name), status=status)


@router.delete("/quota-groups/{name}", status_code=204)
@allows(Access.ADMINISTER)
async def delete_quota_group(name: GroupName, services: CurrentServices, *, if_match: IfMatch = None) -> Response:
    """409 while experiments that have not ended draw from it. Of the default group only its quota is removed."""
    experiments = services.experiments
    async with matched(services, if_match, lambda: _found(services, name), f"quota group {name}"):
        await experiments.submit(QuotaGroupDeleted(at=experiments.clock.now(), name=name))
    return Response(status_code=204)


def _found(services: Services, name: str) -> View:
    for view in group_views(services.queries):
        if view["name"] == name:
            return view
    raise NotFoundError("quota group", name)
