"""Analyses over HTTP: the best, the front, importance, slices, learning curves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tuner_service.api.bodies.schemas import MAX_NAME
from tuner_service.api.cached_reads import cached_read
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.api.single_flight import SingleFlight
from tuner_service.domain.errors import Fault, InputError
from tuner_service.service.analyses import CURVE_POINTS, CURVES_LIMIT, Analyses
from tuner_service.service.experiments import Services
from tuner_service.service.views import View

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])

Metric = Annotated[
    str | None, Query(max_length=MAX_NAME, description="of several objectives, which; the first when left out")
]


@router.get("/best")
@cached_read()
async def read_best(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The best trial, the best so far after each, and what more trials may bring. Several objectives: the front too."""
    return await _answer(request, await _analyses(services, experiment_id), "best", Analyses.best)


@router.get("/pareto")
@cached_read()
async def read_pareto(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The trials that no other beats in every objective, and the hypervolume they dominate."""
    return await _answer(request, await _analyses(services, experiment_id), "pareto", Analyses.pareto)


@router.get("/slices")
@cached_read()
async def read_slices(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The objectives against each parameter, as columns."""
    return await _answer(request, await _analyses(services, experiment_id), "slices", Analyses.slices)


@router.get("/failures")
async def read_failures(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The simplest rule about one parameter that tells trials that fail from the others; null where none holds."""
    found = await _analyses(services, experiment_id)
    return await _shared(request).answer(
        request,
        ("failures", found.experiment.id),
        revision=found.failures_revision(),
        work=lambda check: replace(found, check=check).failures(),
    )


@router.get("/curves")
@cached_read()
async def read_curves(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    limit: Annotated[int, Query(ge=1, le=CURVES_LIMIT, description="trials: the best and the newest")] = CURVES_LIMIT,
    points: Annotated[int, Query(ge=2, le=CURVE_POINTS, description="of each curve")] = CURVE_POINTS,
) -> Response:
    """Learning curves of many trials at once, down-sampled."""
    found = await _analyses(services, experiment_id)
    # Every report changes them, and a report changes nothing of the experiment that could be looked at.
    version = await asyncio.to_thread(services.queries.version)
    return await _shared(request).answer(
        request,
        ("curves", found.experiment.id, str(limit), str(points)),
        revision=None if version is None else str(version),
        work=lambda check: replace(found, check=check).curves(limit=limit, points=points),
    )


@router.get("/importance")
async def read_importance(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, metric: Metric = None
) -> Response:
    """How much each parameter matters for one objective: shares that add up to 1."""
    found = await _analyses(services, experiment_id)
    metrics = [objective.metric for objective in found.objective.every]
    if metric is not None and metric not in metrics:
        raise InputError([Fault(pointer="/metric", message=f"is no objective; there are: {', '.join(metrics)}")])
    return await _answer(request, found, f"importance {metric or metrics[0]}", lambda one: one.importance(metric))


async def _answer(request: Request, found: Analyses, name: str, look: Callable[[Analyses], View]) -> Response:
    revision = await asyncio.to_thread(found.revision)
    return await _shared(request).answer(
        request, (name, found.experiment.id), revision=revision, work=lambda check: look(replace(found, check=check))
    )


def _shared(request: Request) -> SingleFlight:
    shared = request.app.state.single_flight
    assert isinstance(shared, SingleFlight)  # noqa: S101  # set by create_app before any request
    return shared


async def _analyses(services: Services, experiment_id: str) -> Analyses:
    experiment = await asyncio.to_thread(services.experiments.find, experiment_id)
    return Analyses(queries=services.queries, experiment=experiment)
