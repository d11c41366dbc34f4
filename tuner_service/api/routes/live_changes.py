"""Live changes over HTTP: limits and labels, the search space, trials of people's own, imports, clones."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from tuner_service.api.bodies.algorithm_faults import unsearchable
from tuner_service.api.bodies.change_bodies import (
    AddTrialBody,
    ChangeBody,
    CloneBody,
    ImportBody,
    ResultBody,
    RetryBody,
    SearchSpaceBody,
)
from tuner_service.api.bodies.experiment_file import DRAWN_SEED_BITS, MAX_FILE_CHARACTERS, budget_raise, collect_faults
from tuner_service.api.bodies.names import named_space
from tuner_service.api.bodies.reading import parse, read_as, read_body, takes_body, validate
from tuner_service.api.bodies.schemas import NothingBody
from tuner_service.api.bodies.strict_json import canonical_digest
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.responses import IfMatch, entity_tag, json_response, tagged_response
from tuner_service.api.routes.matching import matched, matched_experiment, matched_trial, view_for
from tuner_service.api.routes.paging import DEFAULT_PAGE, make_cursor, read_number_cursor
from tuner_service.api.routes.parameters import Cursor, ExperimentIdPath, Limit, Number
from tuner_service.dispatcher.commands import IdempotencyKey
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.experiments import Services
from tuner_service.service.live_changes import CloneChanges, Labels, LiveChanges, Result
from tuner_service.service.views import View

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])
trial_router = APIRouter(prefix="/api/v1/trials/{experiment_id}/{number}", tags=["trials"])

FAILED = TrialStatus.FAILED.value


@router.patch("")
@takes_body(ChangeBody)
async def change_experiment(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    if_match: IfMatch = None,
) -> Response:
    """Change its budget, parallelism, priority, whether it may be preempted, name, note or tags while it runs."""
    body = await read_as(request, ChangeBody)
    if not body.model_fields_set:
        raise InputError([Fault(pointer="", message=f"changes nothing; known: {', '.join(ChangeBody.model_fields)}")])
    labels = Labels(
        name=body.name,
        note=body.note,
        tags=None if body.tags is None else tuple(body.tags),
        priority=body.priority,
        preemptible=body.preemptible,
        project=body.project,
    )
    async with matched_experiment(request, services, experiment_id, if_match):
        await _changes(services).change(experiment_id, budget_raise(body.budget), labels)
    return await _shown(request, services, experiment_id)


# ── the search space ────────────────────────────────────────────────────────────────────────────
@router.get("/search-space")
def read_search_space(request: Request, experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """The newest revision."""
    return tagged_response(request, _changes(services).newest_revision_view(experiment_id))


@router.put("/search-space")
@takes_body(SearchSpaceBody)
async def change_search_space(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Where to look from now on. What was tried before is kept, and used where it still fits."""
    search_space = await read_body(request, _search_space, most=MAX_FILE_CHARACTERS, is_slow=True)
    changes = _changes(services)
    what = f"the search space of {experiment_id}"
    async with matched(services, if_match, lambda: changes.newest_revision_view(experiment_id), what):
        await asyncio.to_thread(_require_searchable, services, experiment_id, search_space)
        await changes.change_space(experiment_id, search_space)
    return await asyncio.to_thread(_tagged, lambda _: changes.newest_revision_view(experiment_id), experiment_id)


def _require_searchable(services: Services, experiment_id: ExperimentId, search_space: dict[str, Any]) -> None:
    """InputError for a space with which the tuner, told of it, would fail the experiment and its running trials."""
    tuner = services.experiments.find(experiment_id).spec.tuner
    why = unsearchable(tuner.name, tuner.args, parse_search_space(search_space))
    if why:
        raise InputError([Fault(pointer="/search_space", message=why)])


def _search_space(raw: Any) -> dict[str, Any]:
    body, faults = validate(SearchSpaceBody, raw)
    if isinstance(raw, dict) and "search_space" in raw:
        found = collect_faults(lambda: named_space(raw["search_space"]), "/search_space")
        if raw["search_space"] == {}:
            found = [Fault(pointer="/search_space", message="a search space needs at least one parameter")]
        known = {fault.pointer for fault in found}
        faults = found + [fault for fault in faults if fault.pointer not in known]
    if body is None or faults:
        raise InputError(faults)
    return body.search_space


@router.get("/search-space/revisions")
def list_search_spaces(
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Oldest first; the first is what the experiment began with."""
    after = read_number_cursor(cursor)
    with services.queries.snapshot():
        views, has_more = _changes(services).revision_views(experiment_id, after=after, limit=limit)
    following = make_cursor(str(after + len(views))) if has_more else None
    return json_response({"items": views, "next": following})


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
@router.post("/trials", status_code=201)
@takes_body(AddTrialBody)
async def add_trial(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Run a trial with these parameters; it uses none of the budget, and the tuner learns its outcome."""
    body = await read_as(request, AddTrialBody)
    async with matched_experiment(request, services, experiment_id, if_match):
        number = await _changes(services).add_trial(experiment_id, body.parameters, outside_space=body.outside_space)
    return await _added(services, experiment_id, number)


@router.post("/trials/retry", status_code=201)
@takes_body(RetryBody, optional=True)
async def retry_trials(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Try failed trials again, each as a new trial with `retry_of`."""
    body = await read_as(request, RetryBody, optional=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        numbers = await _changes(services).retry_failed(experiment_id, body.numbers)
    return await asyncio.to_thread(_retried, services, experiment_id, numbers)


def _retried(services: Services, experiment_id: str, numbers: list[int]) -> Response:
    experiments = services.experiments
    found = [experiments.find_trial(experiment_id, number) for number in numbers]
    return json_response(
        {"items": experiments.trial_views(experiments.find(experiment_id), found), "next": None}, status=201
    )


@trial_router.post("/retry", status_code=201)
async def retry_trial(
    request: Request,
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    if_match: IfMatch = None,
) -> Response:
    """Try one trial that has ended again, as a new trial with `retry_of`."""
    await read_as(request, NothingBody, optional=True)
    async with matched_trial(services, experiment_id, number, if_match):
        added = await _changes(services).retry_trial(experiment_id, number)
    return await _added(services, experiment_id, added)


async def _added(services: Services, experiment_id: str, number: int) -> Response:
    view, headers = services.experiments.trial_detail_view, {"Location": f"/api/v1/trials/{experiment_id}/{number}"}
    return await asyncio.to_thread(lambda: json_response(view(experiment_id, number), status=201, headers=headers))


# ── results from elsewhere ──────────────────────────────────────────────────────────────────────
@router.post("/import")
@takes_body(ImportBody)
async def import_results(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Tell the tuner results from elsewhere, or everything an earlier experiment found that fits the space."""
    body = await read_as(request, ImportBody)
    if (body.results is None) == (body.experiment is None):
        raise InputError([Fault(pointer="", message='should have either "results" or "experiment"')])
    results = await asyncio.to_thread(_results, body.results or [])
    changes = _changes(services)
    async with matched_experiment(request, services, experiment_id, if_match):
        if body.experiment is not None:
            return json_response(await changes.import_experiment(experiment_id, body.experiment))
        return json_response(await changes.import_results(experiment_id, results, outside_space=body.outside_space))


def _results(bodies: list[ResultBody]) -> list[Result]:
    faults = [
        Fault(pointer=f"/results/{index}/value", message='is missing; a result without one has "status": "failed"')
        for index, body in enumerate(bodies)
        if body.value is None and body.status != FAILED
    ]
    if faults:
        raise InputError(faults)
    return [
        Result(
            parameters=body.parameters,
            value=None if body.status == FAILED else body.value,
            status=TrialStatus(body.status or TrialStatus.SUCCEEDED),
            step=body.step,
            own_failure=body.status == FAILED,
        )
        for body in bodies
    ]


# ── clones ──────────────────────────────────────────────────────────────────────────────────────
@router.post("/clone", status_code=201)
@takes_body(CloneBody, optional=True)
async def clone_experiment(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    if_match: IfMatch = None,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response:
    """Start a new experiment with the same code and settings, the newest search space, and another seed."""
    body, digest = await read_body(
        request, lambda raw: (parse(CloneBody, raw), canonical_digest([experiment_id, raw])), optional=True
    )
    key = None
    if idempotency_key is not None:
        key = IdempotencyKey(key=idempotency_key, body_digest=digest)
    changes = CloneChanges(
        seed=secrets.randbits(DRAWN_SEED_BITS) if body.seed is None else body.seed,
        name=body.name or "",
        budget=budget_raise(body.budget),
    )
    async with matched_experiment(request, services, experiment_id, if_match):
        cloned = await _changes(services).clone(experiment_id, changes, key)
    view, headers = view_for(request, services), {"Location": f"/api/v1/experiments/{cloned}"}
    return await asyncio.to_thread(lambda: json_response(view(cloned), status=201, headers=headers))


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────
def _changes(services: Services) -> LiveChanges:
    return LiveChanges(experiments=services.experiments)


async def _shown(request: Request, services: Services, experiment_id: str) -> Response:
    return await asyncio.to_thread(_tagged, view_for(request, services), experiment_id)


def _tagged(view_of: Callable[[str], View], experiment_id: str) -> Response:
    view = view_of(experiment_id)
    return json_response(view, headers={"ETag": entity_tag(view)})
