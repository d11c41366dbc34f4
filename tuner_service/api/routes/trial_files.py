"""The files that trials left, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.file_responses import file_response, page_of_files
from tuner_service.api.responses import json_response
from tuner_service.api.routes.paging import DEFAULT_PAGE
from tuner_service.api.routes.parameters import Cursor, ExperimentIdPath, Limit, Number
from tuner_service.domain.assets import Asset
from tuner_service.service.digests import digest_view
from tuner_service.service.experiments import Services
from tuner_service.service.trial_files import TrialFiles
from tuner_service.service.views import View, output_view

router = APIRouter(prefix="/api/v1/trials/{experiment_id}/{number}/files", tags=["trials"])
Wanted = Annotated[
    str | None,
    Query(alias="checkpoint", pattern="^(best|last|[0-9]{1,16})$", description="of a checkpoint: best, last or a step"),
]


@router.get("")
async def list_trial_files(  # noqa: PLR0913  # one argument for each part of the request
    experiment_id: ExperimentIdPath,
    number: Number,
    services: CurrentServices,
    *,
    wanted: Wanted = None,
    limit: Limit = DEFAULT_PAGE,
    cursor: Cursor = None,
) -> Response:
    """Of its output, or of a checkpoint, by path; `output` says whether all is there that it left."""

    def look() -> View:
        asset = _asset(services, experiment_id, number, wanted)
        page = page_of_files(services.assets, asset, cursor, limit)
        output = None if wanted else output_view(services.experiments.find_trial(experiment_id, number))
        return {**page, "asset": digest_view(asset.id), "output": output}

    return json_response(await services.assets.threads.run(look))


@router.get("/{path:path}", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
async def read_trial_file(  # noqa: PLR0913  # one argument for each part of the request
    request: Request,
    experiment_id: ExperimentIdPath,
    number: Number,
    path: str,
    services: CurrentServices,
    *,
    wanted: Wanted = None,
) -> Response:
    """One file, to be saved; ranges are taken."""
    assets = services.assets
    file = await assets.threads.run(lambda: assets.file(_asset(services, experiment_id, number, wanted), path))
    return await file_response(request, assets, file)


def _asset(services: Services, experiment_id: str, number: int, wanted: str | None) -> Asset:
    trial = services.experiments.find_trial(experiment_id, number)
    files = TrialFiles(queries=services.queries, assets=services.assets)
    return files.output(trial) if wanted is None else files.checkpoint(trial, wanted)
