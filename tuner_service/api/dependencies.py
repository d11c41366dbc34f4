"""What handlers need beside their arguments."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple, get_args, get_origin

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

    So is one that stands twice where one is taken: the other would be passed over in silence; and a number that is
    written otherwise than in digits, which Python reads where others do not (`1_0`, ` 1`).
    """
    if not connection.scope["query_string"]:
        return
    route = connection.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    annotations = {parameter.alias: parameter.field_info.annotation for parameter in route.dependant.query_params}
    known = sorted(annotations)
    faults = [
        Fault(pointer=f"/query/{name:.100}", message=f"no such parameter; known: {', '.join(known) or 'none'}")
        for name in connection.query_params
        if name not in known
    ]
    given = [name for name, _ in connection.query_params.multi_items()]
    faults += [
        Fault(pointer=f"/query/{name}", message=f"stands {given.count(name)} times; it takes one value")
        for name in known
        if given.count(name) > 1 and not _takes_several(annotations[name])
    ]
    faults += [
        Fault(pointer=f"/query/{name}", message=f"should be {form.name} in digits, not {text!r:.100}")
        for name, text in connection.query_params.items()
        if name in annotations and (form := _form_of(annotations[name])) and not form.pattern.fullmatch(text)
    ]
    if faults:
        raise InputError(faults)


class NumberForm(NamedTuple):
    """How a number may be written in an address."""

    name: str
    pattern: re.Pattern[str]


WHOLE_NUMBER = NumberForm("a whole number", re.compile("-?[0-9]+"))
_FORMS = {
    int: WHOLE_NUMBER,
    float: NumberForm("a number", re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")),
}


def _form_of(annotation: Any) -> NumberForm | None:
    """None where it takes no number."""
    parts = (annotation, *get_args(annotation))
    return next((_FORMS[part] for part in parts if part in (int, float)), None)


def _takes_several(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(_takes_several(part) for part in get_args(annotation))


async def _current_services(connection: HTTPConnection) -> Services:
    # FastAPI hands a plain function to another thread, and waits for it.
    return services_of(connection)


CurrentServices = Annotated[Services, Depends(_current_services)]
