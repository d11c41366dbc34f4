"""Ask and tell over HTTP: for evaluators that run themselves, in any language."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from tuner_service.api.bodies.ask_bodies import TellBody, told_of
from tuner_service.api.bodies.reading import read_as, takes_body
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import json_response
from tuner_service.api.routes.parameters import DEFAULT_WAIT_S, ExperimentIdPath, Timeout
from tuner_service.service.asking import Asking, token_for

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["ask and tell"])


@router.post("/ask")
async def ask_trial(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    timeout: Timeout = DEFAULT_WAIT_S,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response:
    """Hold the next trial, whose `token` is told with what becomes of it; waits for one up to `timeout`, then 503.

    Asking again with the same `Idempotency-Key` gives the same trial. 409 says that the experiment has ended.
    """
    await read_as(request, NothingBody, optional=True)
    token = token_for(experiment_id, idempotency_key)
    asking = Asking(experiments=services.experiments)
    return json_response(await asking.ask(experiment_id, token, timeout_s=timeout, is_gone=request.is_disconnected))


@router.post("/tell")
@takes_body(TellBody)
async def tell_trial(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, timeout: Timeout = DEFAULT_WAIT_S
) -> Response:
    """Tell a report, or the end, of the trial that `token` holds. `decision` says whether to go on or to stop.

    A report is answered once it is judged, or after `timeout`. Telling the same again changes nothing.
    """
    body = await read_as(request, TellBody)
    experiment = await asyncio.to_thread(services.experiments.find, experiment_id)
    told = told_of(body, experiment.spec)
    asking = Asking(experiments=services.experiments)
    return json_response(await asking.tell(experiment_id, told, timeout_s=timeout, is_gone=request.is_disconnected))
