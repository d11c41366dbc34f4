"""Analyses over HTTP: the best, the front, importance, slices, learning curves."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tuner_service.api.answers import json_response
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.experiments import ExperimentIdPath
from tuner_service.api.schemas import MAX_NAME
from tuner_service.domain.errors import Fault, InputError
from tuner_service.service.analyses import CURVE_POINTS, CURVES_LIMIT, Analyses
from tuner_service.service.experiments import Services
from tuner_service.workers.importance import importance

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])

Metric = Annotated[
    str | None, Query(max_length=MAX_NAME, description="of several objectives, which; the first when left out")
]


@router.get("/best")
def read_best(experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The best trial, the best so far after each, and what more trials may bring. Several objectives: the front too."""
    return json_response(_analyses(services, experiment_id).best())


@router.get("/pareto")
def read_pareto(experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The trials that no other beats in every objective, and the hypervolume they dominate."""
    return json_response(_analyses(services, experiment_id).pareto())


@router.get("/slices")
def read_slices(experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The objectives against each parameter, as columns."""
    return json_response(_analyses(services, experiment_id).slices())


@router.get("/curves")
def read_curves(
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    limit: Annotated[int, Query(ge=1, le=CURVES_LIMIT, description="trials: the best and the newest")] = CURVES_LIMIT,
    points: Annotated[int, Query(ge=2, le=CURVE_POINTS, description="of each curve")] = CURVE_POINTS,
) -> Response:
    """Learning curves of many trials at once, down-sampled."""
    return json_response(_analyses(services, experiment_id).curves(limit=limit, points=points))


@router.get("/importance")
async def read_importance(
    experiment_id: ExperimentIdPath, services: CurrentServices, *, metric: Metric = None
) -> Response:
    """How much each parameter matters for one objective: shares that add up to 1."""
    found = await asyncio.to_thread(_analyses, services, experiment_id)
    metrics = [objective.metric for objective in found.objective.every]
    if metric is not None and metric not in metrics:
        raise InputError([Fault(pointer="/metric", message=f"is no objective; there are: {', '.join(metrics)}")])
    asked = await asyncio.to_thread(found.importance_input, metric)
    answer = await importance(asked)
    return json_response({"id": experiment_id, "metric": metric or metrics[0], **answer})


def _analyses(services: Services, experiment_id: str) -> Analyses:
    return Analyses(queries=services.queries, experiment=services.experiments.find(experiment_id))
