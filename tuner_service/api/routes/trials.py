"""Trials over HTTP: read, stop; their metrics, checkpoints, logs, and what they used."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from trials.wire.limits import LOG_CHUNK_BYTES
from tuner_service.api.bodies.reading import read_as
from tuner_service.api.bodies.schemas import MAX_NODES, MAX_PROCESSES_PER_NODE, NothingBody
from tuner_service.api.cached_reads import cached_read
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, json_response, tagged_response
from tuner_service.api.routes.matching import matched_trial
from tuner_service.api.routes.paging import make_cursor, read_pair_cursor
from tuner_service.api.routes.parameters import (
    DEFAULT_WAIT_S,
    MAX_NUMBER,
    Cursor,
    ExperimentIdPath,
    Number,
    Timeout,
    WaitFor,
)
from tuner_service.service.digests import DIGEST_PREFIX
from tuner_service.service.parts import Printed
from tuner_service.service.report_pages import page_of_reports
from tuner_service.service.resource_samples import resources_view
from tuner_service.service.retention import require_metrics
from tuner_service.service.views import checkpoint_view, metric_view

router = APIRouter(prefix="/api/v1/trials/{experiment_id}/{number}", tags=["trials"])

METRICS_PAGE = 10_000
MAX_OFFSET = 2**53


@router.get("")
@cached_read()
async def read_trial(  # noqa: PLR0913  # one argument for each part of the request
    request: Request,
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    wait_for: WaitFor = None,
    timeout: Timeout = DEFAULT_WAIT_S,
) -> Response:
    """One trial and each of its attempts."""
    experiments = services.experiments
    if wait_for is not None:
        await experiments.wait_until_trial_ended(
            experiment_id, number, timeout_s=timeout, is_gone=request.is_disconnected
        )
    view = experiments.trial_detail_view
    return await asyncio.to_thread(lambda: tagged_response(request, view(experiment_id, number)))


@router.post("/stop")
async def stop_trial(
    request: Request,
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    if_match: IfMatch = None,
) -> Response:
    """Give one trial up. The answer does not wait for it to end."""
    await read_as(request, NothingBody, optional=True)
    async with matched_trial(services, experiment_id, number, if_match):
        await services.experiments.stop_trial(experiment_id, number)
    view = services.experiments.trial_detail_view
    return await asyncio.to_thread(lambda: json_response(view(experiment_id, number)))


@router.get("/metrics")
@cached_read()
def read_metrics(
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    limit: Annotated[int, Query(ge=1, le=METRICS_PAGE)] = METRICS_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Every report, by attempt and in the order in which they were made."""
    after = read_pair_cursor(cursor)
    with services.queries.snapshot():
        services.experiments.find_trial(experiment_id, number)
        require_metrics(services.experiments.find(experiment_id))
        rows, goes_on = page_of_reports(services.queries, experiment_id, number, after=after, limit=limit)
    following = make_cursor(f"{rows[-1].attempt}.{rows[-1].sequence}") if goes_on else None
    return json_response({"items": [metric_view(row) for row in rows], "next": following})


@router.get("/checkpoints")
@cached_read()
def list_checkpoints(experiment_id: ExperimentIdPath, number: Number, services: CurrentServices) -> Response:
    """Those kept, newest first."""
    with services.queries.snapshot():
        services.experiments.find_trial(experiment_id, number)
        found = services.queries.checkpoints(experiment_id, number)
    return json_response({"items": [checkpoint_view(checkpoint) for checkpoint in found], "next": None})


@router.get(
    "/checkpoints/{digest}", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}}
)
def read_checkpoint(
    experiment_id: ExperimentIdPath, number: Number, digest: str, services: CurrentServices
) -> Response:
    """The bytes of a checkpoint that the database holds."""
    digest = digest.removeprefix(DIGEST_PREFIX)
    checkpoint, data = services.experiments.find_checkpoint(experiment_id, number, digest)
    name = f"{experiment_id}-{number}-step-{checkpoint.step}.checkpoint"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "ETag": f'"{digest}"'},
    )


@router.get("/resources")
async def read_resources(
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_NUMBER, description="the newest when left out")] = None,
    node: Annotated[int, Query(ge=0, le=MAX_NODES, description="of a trial of several")] = 0,
) -> Response:
    """Memory, cores and processes of an attempt over time. Empty of one that ended, or began, within a second."""
    experiments = services.experiments
    found = await asyncio.to_thread(experiments.find_attempt, experiment_id, number, attempt)
    return json_response(await resources_view(experiments, found, node=node))


@router.get("/logs", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def read_log(  # noqa: PLR0913  # one argument for each query parameter
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    stream: Literal["stdout", "stderr"] = "stdout",
    attempt: Annotated[int | None, Query(ge=1, le=MAX_NUMBER, description="the newest when left out")] = None,
    node: Annotated[int | None, Query(ge=0, le=MAX_NODES, description="of a trial of several; else the first")] = None,
    rank: Annotated[
        int | None, Query(ge=0, lt=MAX_NODES * MAX_PROCESSES_PER_NODE, description="what this process alone wrote")
    ] = None,
    offset: Annotated[int, Query(ge=-MAX_OFFSET, le=MAX_OFFSET, description="negative: from the end")] = 0,
    limit: Annotated[int, Query(ge=1, le=LOG_CHUNK_BYTES, description="bytes")] = LOG_CHUNK_BYTES,
) -> Response:
    """One range of a log, while the trial runs and after. Headers say where it begins, ends, and what there is."""
    experiments = services.experiments
    found = await asyncio.to_thread(experiments.find_attempt, experiment_id, number, attempt)
    of = Printed(node=node, rank=rank)
    part = await experiments.read_log(found, stream=stream, offset=offset, limit=limit, of=of)
    whose = "".join(f"-{word}{at}" for word, at in (("node", node), ("rank", rank)) if at is not None)
    name = f"{experiment_id}-{number}-{part.attempt}{whose}-{stream}.log"
    return Response(
        part.data.encode(),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Log-Offset": str(part.offset),
            "Log-End": str(part.end),
            "Log-Size": str(part.size),
            "Log-Attempt": str(part.attempt),
            "Log-Ended": "true" if part.ended else "false",
        },
    )
