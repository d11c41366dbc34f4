"""Retention over HTTP: metrics of ended experiments out of the database and back, and the removal of what is old."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from tuner_service.api.bodies.change_bodies import CollectBody
from tuner_service.api.bodies.reading import read_as, takes_body
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, json_response
from tuner_service.api.routes.matching import matched_experiment, view_for
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.domain.errors import ConflictError, NotFoundError
from tuner_service.service.experiments import Services
from tuner_service.service.retention import due_view

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])


@router.post("/{experiment_id}/archive")
async def archive_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Move the metrics of an ended experiment into a parquet file, an asset. The answer does not wait for that.

    `archive` of the experiment says how far it is. Its trials, their final values and the best stay readable.
    """
    await read_as(request, NothingBody, optional=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        await services.retention.archive(experiment_id)
    return await _shown(request, services, experiment_id)


@router.post("/{experiment_id}/unarchive")
async def unarchive_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Put the archived metrics back. The answer does not wait for that: `archive` is null once all are there."""
    await read_as(request, NothingBody, optional=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        await services.retention.unarchive(experiment_id)
    return await _shown(request, services, experiment_id)


@router.delete("/{experiment_id}", status_code=204)
async def delete_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Remove an ended experiment and everything of it. 202: it has many rows, and is gone when they are."""
    async with matched_experiment(request, services, experiment_id, if_match):
        is_large = await asyncio.to_thread(services.retention.is_large, experiment_id)
        await services.retention.delete(experiment_id, is_large=is_large)
    return Response(status_code=202 if is_large else 204)


@router.post("/collect")
@takes_body(CollectBody)
async def collect_experiments(request: Request, services: CurrentServices) -> Response:
    """Remove experiments that ended longer ago than `older_than`; those with a tag stay. With `dry_run`: only list."""
    body = await read_as(request, CollectBody)
    retention = services.retention

    def looked_up() -> list[tuple[str, bool, dict[str, object]]]:
        found = retention.due(older_than_s=body.older_than)
        return [(e.id, retention.is_large(e.id), due_view(e, retention.rows)) for e in found]

    found = await asyncio.to_thread(looked_up)
    views, kept = [], []
    for experiment_id, is_large, view in found:
        try:
            if not body.dry_run:
                await retention.delete(experiment_id, is_large=is_large)
        except (ConflictError, NotFoundError) as exc:  # somebody else was there first
            kept.append({"id": experiment_id, "why": str(exc)})
        else:
            views.append(view)
    return json_response({"items": views, "kept": kept, "removed": not body.dry_run})


async def _shown(request: Request, services: Services, experiment_id: str) -> Response:
    view = view_for(request, services)
    return await asyncio.to_thread(lambda: json_response(view(experiment_id)))
