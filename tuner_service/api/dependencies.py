"""What handlers need beside their arguments."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

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
    """A parameter that means nothing here is a mistake: with `?state=failed` one would be given all trials.

    So is one that stands twice where one is taken: the other would be passed over in silence.
    """
    if not connection.scope["query_string"]:
        return
    route = connection.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    several = {
        parameter.alias: _takes_several(parameter.field_info.annotation) for parameter in route.dependant.query_params
    }
    known = sorted(several)
    faults = [
        Fault(pointer=f"/query/{name:.100}", message=f"no such parameter; known: {', '.join(known) or 'none'}")
        for name in connection.query_params
        if name not in known
    ]
    given = [name for name, _ in connection.query_params.multi_items()]
    faults += [
        Fault(pointer=f"/query/{name}", message=f"stands {given.count(name)} times; it takes one value")
        for name in known
        if given.count(name) > 1 and not several[name]
    ]
    if faults:
        raise InputError(faults)


def _takes_several(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(_takes_several(part) for part in get_args(annotation))


async def _current_services(connection: HTTPConnection) -> Services:
    # FastAPI hands a plain function to another thread, and waits for it.
    return services_of(connection)


CurrentServices = Annotated[Services, Depends(_current_services)]
