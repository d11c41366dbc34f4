"""What handlers need beside their arguments."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from tuner_service.service.experiments import Services


def services_of(connection: HTTPConnection) -> Services:
    services = connection.app.state.services
    assert isinstance(services, Services)  # noqa: S101  # set by create_app before any request
    return services


async def _current_services(connection: HTTPConnection) -> Services:
    # FastAPI hands a plain function to another thread, and waits for it.
    return services_of(connection)


CurrentServices = Annotated[Services, Depends(_current_services)]
