"""Experiments over HTTP: create, list, read, pause, resume, stop, delete; their trials and their journal."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from tuner_service.api.bodies.experiment_file import dry_run_view, resolve_experiment, resolve_resume
from tuner_service.api.bodies.reading import read_as, read_body, takes_body
from tuner_service.api.bodies.schemas import MAX_NAME, MAX_TAGS, ExperimentBody, NothingBody, ResumeBody
from tuner_service.api.bodies.strict_json import canonical_digest
from tuner_service.api.cached_reads import cached_read, shared_by_event
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.guard import MAX_BODY_BYTES
from tuner_service.api.responses import IfMatch, json_response, tagged_response
from tuner_service.api.routes.matching import matched_experiment, view_for
from tuner_service.api.routes.paging import DEFAULT_PAGE, make_cursor, read_moment_cursor, read_number_cursor
from tuner_service.api.routes.parameters import DEFAULT_WAIT_S, Cursor, ExperimentIdPath, Limit, Timeout, WaitFor
from tuner_service.dispatcher.commands import IdempotencyKey
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import TrialStatus
from tuner_service.service import report_pages
from tuner_service.service.experiments import Creation, Services
from tuner_service.service.line_pages import page_of_lines
from tuner_service.service.retention import require_metrics
from tuner_service.service.sought import Sought
from tuner_service.service.views import View, journal_view, metric_view

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"])

METRICS_OF_TRIAL = 10_000  # reports of one trial in a list of trials; the trial's own metrics have all


@router.post("", status_code=201)
@takes_body(ExperimentBody)
async def create_experiment(
    request: Request,
    services: CurrentServices,
    *,
    dry_run: bool = False,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response:
    """Create an experiment and start it. With `dry_run` nothing is stored: the answer is the resolved file."""

    def asked(raw: Any) -> Creation | Response:
        resolved = resolve_experiment(raw)
        if dry_run:
            return json_response(dry_run_view(resolved))
        digest = None if idempotency_key is None else canonical_digest(raw)
        key = None if digest is None else IdempotencyKey(key=idempotency_key or "", body_digest=digest)
        return Creation(
            spec=resolved.spec,
            code=resolved.code,
            idempotency=key,
            note=resolved.note,
            tags=resolved.tags,
            priority=resolved.priority,
            code_changes=resolved.code_changes,
            inputs=resolved.inputs,
            code_asset=resolved.code_asset,
        )

    creation = await read_body(request, asked, most=MAX_BODY_BYTES, is_slow=True)
    if isinstance(creation, Response):
        return creation
    experiments = services.experiments
    experiment_id, _ = await experiments.create(creation)
    view, headers = view_for(request, services), {"Location": f"{router.prefix}/{experiment_id}"}
    return await asyncio.to_thread(lambda: json_response(view(experiment_id), status=201, headers=headers))


@router.get("")
@cached_read()
def list_experiments(  # noqa: PLR0913  # one argument for each query parameter
    services: CurrentServices,
    *,
    status: Annotated[list[ExperimentStatus] | None, Query()] = None,
    project: Annotated[str | None, Query(max_length=MAX_NAME, description="of this project alone")] = None,
    tag: Annotated[list[str] | None, Query(max_length=MAX_TAGS, description="with all of these tags")] = None,
    name: Annotated[str | None, Query(max_length=MAX_NAME, description="with this in its name, in any case")] = None,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Newest first."""
    after = read_moment_cursor(cursor)
    sought = Sought(statuses=frozenset(status or ()), project=project, tags=frozenset(tag or ()), name=name)
    with services.queries.snapshot():
        experiments = list(services.queries.experiments())
        if after is not None:
            # By its place and not by its name: the one that ended the page before may have been deleted since.
            experiments = [experiment for experiment in experiments if (experiment.created_at, experiment.id) < after]
        experiments = [experiment for experiment in experiments if sought.admits(experiment)]
        page = experiments[:limit]
        items = services.experiments.list_views(page)
    following = make_cursor(f"{page[-1].created_at!r} {page[-1].id}") if len(experiments) > limit else None
    return json_response({"items": items, "next": following})


@router.get("/{experiment_id}")
@cached_read(by_role=True)  # the values of variables are for some roles only
@shared_by_event(by_role=True)
async def read_experiment(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    wait_for: WaitFor = None,
    timeout: Timeout = DEFAULT_WAIT_S,
) -> Response:
    """One experiment, with what was asked for and what runs now."""
    if wait_for is not None:
        await services.experiments.wait_until_ended(experiment_id, timeout_s=timeout, is_gone=request.is_disconnected)
    view = view_for(request, services)
    return await asyncio.to_thread(lambda: tagged_response(request, view(experiment_id)))


@router.post("/{experiment_id}/pause")
async def pause_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """No new trials; those running go on."""
    await read_as(request, NothingBody, optional=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        await services.experiments.pause(experiment_id)
    return await _shown(request, services, experiment_id)


@router.post("/{experiment_id}/resume")
@takes_body(ResumeBody, optional=True)
async def resume_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Go on where it was, with a raised budget or new code if given. A running one goes on as it is.

    `skip_line` leaves out the line at which the tuner or the assessor raised; `algorithm_timeout` is the time that one
    answer of theirs may take from now on.
    """
    resolved = await read_body(request, resolve_resume, optional=True, most=MAX_BODY_BYTES, is_slow=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        await services.experiments.resume(
            experiment_id,
            resolved.budget,
            revision=resolved.revision,
            skip_line=resolved.skip_line,
            algorithm_timeout_s=resolved.algorithm_timeout_s,
        )
    return await _shown(request, services, experiment_id)


@router.post("/{experiment_id}/stop")
async def stop_experiment(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, if_match: IfMatch = None
) -> Response:
    """Stop it and its trials; `resume` continues it. The answer does not wait for the trials to end."""
    await read_as(request, NothingBody, optional=True)
    async with matched_experiment(request, services, experiment_id, if_match):
        await services.experiments.stop(experiment_id)
    return await _shown(request, services, experiment_id)


@router.get("/{experiment_id}/trials")
@cached_read()
def list_trials(  # noqa: PLR0913  # one argument for each query parameter
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    status: Annotated[list[TrialStatus] | None, Query()] = None,
    metrics: Annotated[bool, Query(description="with every report")] = False,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """By number."""
    statuses = [wanted.value for wanted in status or ()]
    after = read_number_cursor(cursor)
    with services.queries.snapshot():
        experiment = services.experiments.find(experiment_id)
        if metrics:
            require_metrics(experiment)
        trials = services.queries.trials(experiment_id, after=after, limit=limit + 1, statuses=statuses)
        views = services.experiments.trial_views(experiment, trials[:limit])
        if metrics:
            views = _with_metrics(services, experiment_id, views)
    following = make_cursor(str(trials[len(views) - 1].number)) if len(trials) > len(views) else None
    return json_response({"items": views, "next": following})


@router.get("/{experiment_id}/code-changes")
def read_code_changes(experiment_id: ExperimentIdPath, services: CurrentServices) -> Response:
    """How its code differed from what was committed, as a diff; 404 where it did not."""
    data = services.experiments.code_changes(experiment_id)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}.diff"'}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/{experiment_id}/journal")
@cached_read()
def read_journal(
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """What happened, in order: why each trial was started, stopped, tried again."""
    after = read_number_cursor(cursor)
    with services.queries.snapshot():
        services.experiments.find(experiment_id)
        lines, has_more = page_of_lines(services.queries, experiment_id, after=after, limit=limit)
    following = make_cursor(str(lines[-1].line)) if has_more else None
    return json_response({"items": [journal_view(line) for line in lines], "next": following})


async def _shown(request: Request, services: Services, experiment_id: str) -> Response:
    view = view_for(request, services)
    return await asyncio.to_thread(lambda: json_response(view(experiment_id)))


def _with_metrics(services: Services, experiment_id: str, views: list[View]) -> list[View]:
    """As many of them as one answer may tell the reports of; one at least."""
    values = 0
    for place, view in enumerate(views, start=1):
        view["metrics"] = _metrics(services, experiment_id, view["number"])
        values += sum(len(metric["values"]) for metric in view["metrics"])
        if values >= report_pages.VALUES_OF_PAGE:
            return views[:place]
    return views


def _metrics(services: Services, experiment_id: str, number: int) -> list[View]:
    rows, _ = report_pages.page_of_reports(services.queries, experiment_id, number, limit=METRICS_OF_TRIAL)
    return [
        {name: value for name, value in metric_view(row).items() if name in {"attempt", "step", "values"}}
        for row in rows
    ]
