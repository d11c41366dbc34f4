"""What handlers need beside their arguments."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from tuner_service.domain.errors import Fault, InputError
from tuner_service.service.experiments import Services


def services_of(connection: HTTPConnection) -> Services:
    services = connection.app.state.services
    assert isinstance(services, Services)  # noqa: S101  # set by create_app before any request
    return services


async def refuse_unknown_query(connection: HTTPConnection) -> None:
    """A parameter that means nothing here is a mistake: with `?state=failed` one would be given all trials."""
    if not connection.scope["query_string"]:
        return
    route = connection.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = sorted(str(parameter.alias) for parameter in route.dependant.query_params)
    faults = [
        Fault(pointer=f"/query/{name:.100}", message=f"no such parameter; known: {', '.join(known) or 'none'}")
        for name in connection.query_params
        if name not in known
    ]
    if faults:
        raise InputError(faults)


async def _current_services(connection: HTTPConnection) -> Services:
    # FastAPI hands a plain function to another thread, and waits for it.
    return services_of(connection)


CurrentServices = Annotated[Services, Depends(_current_services)]
