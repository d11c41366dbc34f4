"""Everything an experiment found, streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.service.export import METRIC_FIELDS, Export, csv_text, flat_trial, json_array, json_lines

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}/export", tags=["experiments"])

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json", "jsonl": "application/jsonl"}


@router.get(
    "",
    response_class=Response,
    responses={200: {"content": {media_type.partition(";")[0]: {} for media_type in MEDIA_TYPES.values()}}},
)
def export_experiment(
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    format: Annotated[  # noqa: A002  # the name of the query parameter
        Literal["csv", "json", "jsonl"], Query(description="csv has parameters and final metrics as columns")
    ] = "csv",
    metrics: Annotated[bool, Query(description="instead of trials, a row for each metric of each report")] = False,
) -> Response:
    """Every trial by number, or with `metrics` every reported value, however many there are."""
    experiments = services.experiments
    experiments.find(experiment_id)
    export = Export(queries=services.queries, experiment_id=experiment_id, now=experiments.clock.now())
    name = f"{experiment_id}-metrics.{format}" if metrics else f"{experiment_id}.{format}"
    return StreamingResponse(
        # A row of an earlier version may hold text that is none; an export does not break off at it.
        (part.encode(errors="replace") for part in _text(export, format, metrics=metrics)),
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _text(export: Export, format_: str, *, metrics: bool) -> Iterator[str]:
    rows = export.metrics() if metrics else export.trials()
    if format_ == "json":
        return json_array(rows)
    if format_ == "jsonl":
        return json_lines(rows)
    if metrics:
        return csv_text(METRIC_FIELDS, rows)
    return csv_text(export.trial_columns(), map(flat_trial, rows))
