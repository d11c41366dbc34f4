"""The reads that people and dashboards repeat, answered by their handlers without the framework's way to them.

The way (routing, dependencies, validation of parameters) costs more than these handlers do. Only what it could not
change is answered here: no query, a path that is valid as it is, a token that was checked.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from tuner_service.api.dependencies import services_of
from tuner_service.api.errors import domain_problem
from tuner_service.api.routes.experiments import list_experiments, list_trials, read_experiment
from tuner_service.api.routes.trials import MAX_NUMBER, list_checkpoints, read_metrics, read_trial
from tuner_service.domain.errors import TunerServiceError

_EXPERIMENT = r"/api/v1/experiments/(?P<experiment_id>[^/]{1,64})"
_TRIAL = r"/api/v1/trials/(?P<experiment_id>[^/]{1,64})/(?P<number>[0-9]{1,10})"
_HANDLERS: tuple[tuple[re.Pattern[str], Callable[..., Any]], ...] = (
    (re.compile("/api/v1/experiments"), list_experiments),
    (re.compile(_EXPERIMENT), read_experiment),
    (re.compile(f"{_EXPERIMENT}/trials"), list_trials),
    (re.compile(_TRIAL), read_trial),
    (re.compile(f"{_TRIAL}/metrics"), read_metrics),
    (re.compile(f"{_TRIAL}/checkpoints"), list_checkpoints),
)


async def direct_response(scope: Scope) -> Response | None:
    """What the application answers to this ``GET`` of somebody who may read; None where only it can tell."""
    if scope["query_string"]:
        return None
    for pattern, handler in _HANDLERS:
        if (found := pattern.fullmatch(scope["path"])) is not None:
            return await _call(handler, found.groupdict(), Request(scope))
    return None


async def _call(handler: Callable[..., Any], parts: dict[str, Any], request: Request) -> Response | None:
    if "number" in parts:
        parts["number"] = int(parts["number"])
        if not 1 <= parts["number"] <= MAX_NUMBER:
            return None
    parts["services"] = services_of(request)
    try:
        if inspect.iscoroutinefunction(handler):
            response = await handler(request=request, **parts)
        else:
            response = await run_in_threadpool(handler, **parts)
    except TunerServiceError as exc:
        response = domain_problem(exc)
    assert isinstance(response, Response)  # noqa: S101  # every handler returns one
    return response
