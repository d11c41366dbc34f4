"""What the sender sees of an experiment, and preconditions of changes: what it has seen must be what there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import Request

from tuner_service.api.auth import role_of
from tuner_service.api.responses import require_match
from tuner_service.service.access import Role
from tuner_service.service.experiments import Services
from tuner_service.service.views import View


def view_for(request: Request, services: Services) -> Callable[[str], View]:
    """Of an experiment, by its id: the values of variables are for admins, whatever the request does."""
    return partial(services.experiments.detail_view, sees_values=role_of(request) is Role.ADMIN)


async def require_experiment(request: Request, services: Services, experiment_id: str, if_match: str | None) -> None:
    """412 where the experiment is another than with that ETag, as the sender sees it."""
    view = view_for(request, services)
    await require_match(if_match, lambda: view(experiment_id), f"experiment {experiment_id}")


async def require_trial(services: Services, experiment_id: str, number: int, if_match: str | None) -> None:
    """412 where the trial is another than with that ETag."""
    view = services.experiments.trial_detail_view
    await require_match(if_match, lambda: view(experiment_id, number), f"trial {experiment_id}/{number}")
