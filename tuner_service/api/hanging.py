"""Changes while a commit hangs: refused at the door, so that none of them waits for it and none takes up a thread."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from tuner_service.api.auth import Access, access_of
from tuner_service.api.dependencies import services_of
from tuner_service.api.own_page import READING_METHODS
from tuner_service.domain.errors import UnavailableError


async def refuse_changes_that_would_hang(connection: HTTPConnection) -> None:
    """UnavailableError for a request that is no read. The files that agents send need no commit, and are taken."""
    scope = connection.scope
    if scope["type"] != "http" or scope["method"] in READING_METHODS:
        return
    if access_of(scope["endpoint"], scope["method"]) is Access.AGENT:
        return
    if trouble := services_of(connection).runner.commit_hangs():
        raise UnavailableError(f"nothing can be changed now, and this was not done: {trouble}")
