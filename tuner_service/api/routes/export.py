"""Everything an experiment found, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.made_files import MadeFiles, pieces, size_of
from tuner_service.api.responses import json_response
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.api.single_flight import CLIENT_GONE
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Experiment
from tuner_service.domain.search_space import parse_search_space
from tuner_service.exports.process import Form, make_apart, require_library
from tuner_service.service.export import (
    METRIC_FIELDS,
    Export,
    csv_text,
    flat_trial,
    json_array,
    json_lines,
    known_ranges,
)
from tuner_service.service.questions import Check
from tuner_service.service.retention import require_metrics

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}/export", tags=["experiments"])

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "parquet": "application/vnd.apache.parquet",
    "optuna": "application/octet-stream",
}
SUFFIXES = {"optuna": "log"}


@router.get(
    "",
    response_class=Response,
    responses={200: {"content": {media_type.partition(";")[0]: {} for media_type in MEDIA_TYPES.values()}}},
)
async def export_experiment(
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    format: Annotated[  # noqa: A002  # the name of the query parameter
        Literal["csv", "json", "jsonl", "parquet", "optuna"],
        Query(description="csv has parameters and final metrics as columns; optuna is a study, as a journal file"),
    ] = "csv",
    metrics: Annotated[bool, Query(description="instead of trials, a row for each metric of each report")] = False,
) -> Response:
    """Every trial by number, or with `metrics` every reported value, however many there are.

    `parquet` and `optuna` are made as a whole, one after the other. 501 for parquet where its extra is not installed.
    """
    experiment = await asyncio.to_thread(services.experiments.find, experiment_id)
    if metrics or format == "optuna":
        require_metrics(experiment)
    export = Export(queries=services.queries, experiment_id=experiment_id, now=services.experiments.clock.now())
    stem = f"{experiment_id}-metrics" if metrics else experiment_id
    headers = {"Content-Disposition": f'attachment; filename="{stem}.{SUFFIXES.get(format, format)}"'}
    if format not in {Form.PARQUET, Form.OPTUNA}:
        # A row of an earlier version may hold text that is none; an export does not break off at it.
        parts = (part.encode(errors="replace") for part in _text(export, format, metrics=metrics))
        return StreamingResponse(parts, media_type=MEDIA_TYPES[format], headers=headers)
    form = Form(format)
    if form is Form.OPTUNA and metrics:
        raise InputError([Fault(pointer="/metrics", message="a study of Optuna's holds trials and their reports")])
    await asyncio.to_thread(require_library, form)
    made_files = request.app.state.made_files
    assert isinstance(made_files, MadeFiles)  # noqa: S101  # set by create_app before any request
    file = await made_files.make(request, lambda check: _made(export, experiment, form, check, metrics=metrics))
    if file is None:
        return json_response({}, status=CLIENT_GONE)
    headers["Content-Length"] = str(size_of(file))
    return StreamingResponse(pieces(file), media_type=MEDIA_TYPES[format], headers=headers)


def _made(export: Export, experiment: Experiment, form: Form, check: Check, *, metrics: bool) -> IO[bytes]:
    if form is Form.PARQUET:
        rows = export.metrics() if metrics else map(flat_trial, export.trials())
        return make_apart({"form": form.value, "metrics": metrics}, rows, check)
    objectives = [{"metric": one.metric, "goal": one.goal.value} for one in experiment.spec.objective.every]
    newest = export.queries.search_space(export.experiment_id)
    space = parse_search_space(newest) if newest else None
    head: dict[str, Any] = {
        "form": form.value,
        "id": experiment.id,
        "name": experiment.spec.name,
        "objectives": objectives,
    }
    head["ranges"] = {} if space is None else known_ranges(space)
    return make_apart(head, export.trials_with_reports(objectives[0]["metric"]), check)


def _text(export: Export, format_: str, *, metrics: bool) -> Iterator[str]:
    rows = export.metrics() if metrics else export.trials()
    if format_ == "json":
        return json_array(rows)
    if format_ == "jsonl":
        return json_lines(rows)
    if metrics:
        return csv_text(METRIC_FIELDS, rows)
    return csv_text(export.trial_columns(), map(flat_trial, rows))
