"""What the sender sees of an experiment, and preconditions of changes: what it has seen must be what there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from fastapi import Request
from starlette.exceptions import HTTPException

from tuner_service.api.auth import role_of
from tuner_service.api.responses import entity_tag, is_unchanged
from tuner_service.service.access import Role
from tuner_service.service.experiments import Services
from tuner_service.service.views import View


def view_for(request: Request, services: Services) -> Callable[[str], View]:
    """Of an experiment, by its id: the values of variables are for admins, whatever the request does."""
    return partial(services.experiments.detail_view, sees_values=role_of(request) is Role.ADMIN)


@asynccontextmanager
async def matched(services: Services, if_match: str | None, view: Callable[[], View], what: str) -> AsyncIterator[None]:
    """412 where what the sender has seen is not what there is; inside, it is changed.

    Of several that have seen the same and come at once, one changes it. A request without ``If-Match`` waits for none.
    """
    if if_match is None:
        yield
        return
    async with services.experiments.turn(what):
        tag = await asyncio.to_thread(lambda: entity_tag(view()))
        if not is_unchanged(tag, if_match):
            raise HTTPException(412, f"{what} has changed since it was read with {if_match:.100}; read it again")
        yield


def matched_experiment(
    request: Request, services: Services, experiment_id: str, if_match: str | None
) -> AbstractAsyncContextManager[None]:
    """412 where the experiment is another than with that ETag, as the sender sees it."""
    view = view_for(request, services)
    return matched(services, if_match, lambda: view(experiment_id), f"experiment {experiment_id}")


def matched_trial(
    services: Services, experiment_id: str, number: int, if_match: str | None
) -> AbstractAsyncContextManager[None]:
    """412 where the trial is another than with that ETag."""
    view = services.experiments.trial_detail_view
    return matched(services, if_match, lambda: view(experiment_id, number), f"trial {experiment_id}/{number}")
