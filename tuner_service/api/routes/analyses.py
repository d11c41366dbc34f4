"""Analyses over HTTP: the best, the front, importance, slices, failures, learning curves, the timeline."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tuner_service.api.asking import answer, takes_gzip
from tuner_service.api.bodies.schemas import MAX_NAME
from tuner_service.api.cached_reads import shared_by_event
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.api.versions import version_of
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Experiment
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.experiments import Services
from tuner_service.service.questions import CURVE_POINTS, CURVES_LIMIT, CURVES_SHOWN, Kind, Question
from tuner_service.service.retention import require_metrics

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])

LEAST_CURVE_POINTS = 4  # its ends, the least and the greatest
_ENDED = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED, TrialStatus.FAILED)
_Searched = tuple[Experiment, Mapping[str, object]]  # an experiment, and where it looks now
LIVE = (TrialStatus.RUNNING, TrialStatus.STOPPING)

Metric = Annotated[
    str | None, Query(max_length=MAX_NAME, description="of several objectives, which; the first when left out")
]


@router.get("/best")
@shared_by_event()
async def read_best(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The best trial, the best so far after each, and what more trials may bring. Several objectives: the front too."""
    return await _of_outcomes(request, services, await _searched(services, experiment_id), Kind.BEST)


@router.get("/pareto")
@shared_by_event()
async def read_pareto(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The trials that no other beats in every objective, and the hypervolume they dominate."""
    return await _of_outcomes(request, services, await _searched(services, experiment_id), Kind.PARETO)


@router.get("/slices")
@shared_by_event()
async def read_slices(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The objectives against each parameter, as columns."""
    return await _of_outcomes(request, services, await _searched(services, experiment_id), Kind.SLICES)


@router.get("/failures")
@shared_by_event()
async def read_failures(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The simplest rule about one parameter that tells trials that fail from the others; null where none holds."""
    counts = (await _found(services, experiment_id)).counts
    revision = "/".join(str(counts.get(status.value, 0)) for status in _ENDED)
    question = Question(kind=Kind.FAILURES, experiment_id=experiment_id, compressed=takes_gzip(request))
    return await answer(request, services, question, revision=revision)


@router.get("/importance")
@shared_by_event()
async def read_importance(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, metric: Metric = None
) -> Response:
    """How much each parameter matters for one objective: shares that add up to 1."""
    searched = await _searched(services, experiment_id)
    metrics = [objective.metric for objective in searched[0].spec.objective.every]
    if metric is not None and metric not in metrics:
        raise InputError([Fault(pointer="/metric", message=f"is no objective; there are: {', '.join(metrics)}")])
    return await _of_outcomes(request, services, searched, Kind.IMPORTANCE, metric=metric or metrics[0])


@router.get("/curves")
@shared_by_event()
async def read_curves(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    limit: Annotated[int, Query(ge=1, le=CURVES_LIMIT, description="trials: the best and the newest")] = CURVES_SHOWN,
    points: Annotated[int, Query(ge=LEAST_CURVE_POINTS, le=CURVE_POINTS, description="of each curve")] = CURVE_POINTS,
) -> Response:
    """Learning curves of many trials at once; of long ones the ends, and the least and the greatest of each stretch.

    A curve whose `complete` is false has further reports that were not read yet: so many are read for one answer.
    """
    require_metrics(await _found(services, experiment_id))
    question = Question(
        kind=Kind.CURVES,
        experiment_id=experiment_id,
        options={"limit": limit, "points": points},
        compressed=takes_gzip(request),
    )
    # Every report changes them, and a report changes nothing of the experiment that could be looked at.
    return await answer(request, services, question, revision=await commit_revision(services))


@router.get("/timeline")
@shared_by_event()
async def read_timeline(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """Which trial held which device or core when, as columns with a row for each of `lanes` that an attempt held.

    Seconds count from the creation of the experiment; what runs has no end. A device is a lane. What holds none holds
    a place among the cores of its node: the lowest that was free. Of very many attempts the newest.
    """
    found = await _found(services, experiment_id)
    now = services.experiments.clock.now()
    question = Question(
        kind=Kind.TIMELINE, experiment_id=experiment_id, options={"now": now}, compressed=takes_gzip(request)
    )
    return await answer(request, services, question, revision=await live_revision(services, found, now=now))


async def live_revision(
    services: Services, experiment: Experiment, *, now: float, counting: Iterable[TrialStatus] = LIVE
) -> str | None:
    """Of what every commit may change, and while there are trials that are ``counting`` every second, too."""
    version = await commit_revision(services)
    if version is None or not any(experiment.counts.get(status.value, 0) for status in counting):
        return version
    return f"{version}/{int(now)}"


async def commit_revision(services: Services) -> str | None:
    version = await version_of(services.queries)
    return None if version is None else str(version)


async def _of_outcomes(
    request: Request, services: Services, searched: _Searched, kind: Kind, **options: Any
) -> Response:
    """Of what changes with the trials that succeeded, those that are left, and the search space."""
    experiment, space = searched
    question = Question(kind=kind, experiment_id=experiment.id, options=options, compressed=takes_gzip(request))
    return await answer(request, services, question, revision=_outcomes_revision(experiment, space))


def _outcomes_revision(experiment: Experiment, space: Mapping[str, object]) -> str:
    counts, budget = experiment.counts, experiment.spec.budget.trials
    used = [counts.get(status.value, 0) for status in (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)]
    digest = hashlib.sha256(json.dumps(space, sort_keys=True).encode()).hexdigest()
    return f"{used[0]}/{used[1]}/{budget}/{digest}"


async def _found(services: Services, experiment_id: str) -> Experiment:
    return await asyncio.to_thread(services.experiments.find, experiment_id)


async def _searched(services: Services, experiment_id: str) -> _Searched:
    def read() -> _Searched:
        with services.queries.snapshot():
            return services.experiments.find(experiment_id), services.queries.search_space(experiment_id) or {}

    return await asyncio.to_thread(read)
