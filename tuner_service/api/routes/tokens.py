"""Tokens of people and agents: made, listed, exchanged and revoked by admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from tuner_service.api.auth import Access, allows, sender_of
from tuner_service.api.bodies.reading import read_as, takes_body
from tuner_service.api.bodies.tokens import NewTokenBody, RotationBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, json_response, tagged_response
from tuner_service.api.routes.matching import matched
from tuner_service.domain.errors import NotFoundError
from tuner_service.ports import StoredToken
from tuner_service.service.access import Role
from tuner_service.service.experiments import Services
from tuner_service.service.views import View, moment

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])
TokenName = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("")
@allows(Access.ADMINISTER)
def list_tokens(services: CurrentServices) -> Response:
    """By name: those that are good, have expired, or were revoked lately. Those of the home folder are files."""
    return json_response({"items": [_view(services, row) for row in services.tokens.all()], "next": None})


@router.get("/{name}")
@allows(Access.ADMINISTER)
def read_token(request: Request, name: TokenName, services: CurrentServices) -> Response:
    """One of them; what it opens is told nobody again."""
    return tagged_response(request, _found(services, name))


@router.post("", status_code=201)
@allows(Access.ADMINISTER)
@takes_body(NewTokenBody)
async def make_token(request: Request, services: CurrentServices) -> Response:
    """A new one, whose `token` is in this answer and nowhere else. 409 where one of that name is there."""
    body = await read_as(request, NewTokenBody)
    by = sender_of(request)
    secret, row = await asyncio.to_thread(
        services.tokens.add, body.name, Role(body.role), lasts_s=body.expires_in, by=by
    )
    return json_response({**_view(services, row), "token": secret}, status=201)


@router.post("/{name}/rotate", status_code=201)
@allows(Access.ADMINISTER)
@takes_body(RotationBody, optional=True)
async def rotate_token(
    request: Request, name: TokenName, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Another `token` in place of the one it has, which opens nothing from now on."""
    body = await read_as(request, RotationBody, optional=True)
    by = sender_of(request)
    async with matched(services, if_match, lambda: _found(services, name), f"token {name}"):
        secret, row = await asyncio.to_thread(services.tokens.rotate, name, lasts_s=body.expires_in, by=by)
    _send_away(services)
    return json_response({**_view(services, row), "token": secret}, status=201)


@router.delete("/{name}", status_code=204)
@allows(Access.ADMINISTER)
async def revoke_token(name: TokenName, services: CurrentServices, *, if_match: IfMatch = None) -> Response:
    """It opens nothing from now on: browsers that signed in with it are signed out, streams and channels closed."""
    async with matched(services, if_match, lambda: _found(services, name), f"token {name}"):
        await asyncio.to_thread(services.tokens.revoke, name)
    _send_away(services)
    return Response(status_code=204)


def _send_away(services: Services) -> None:
    services.events.end_those_who_may_not()
    services.hub.close_those_who_may_not()


def _found(services: Services, name: str) -> View:
    for row in services.tokens.all():
        if row.name == name:
            return _view(services, row)
    raise NotFoundError("token", name, "`tuner token ls` lists those there are")


def _view(services: Services, row: StoredToken) -> View:
    return {
        "name": row.name,
        "role": row.role,
        "agent": row.agent_id,
        "state": services.tokens.state_of(row).value,
        "created_at": moment(row.created_at),
        "made_by": row.made_by,
        "expires_at": moment(row.expires_at),
        "revoked_at": moment(row.revoked_at),
        "last_used_at": moment(row.last_used_at),
    }
