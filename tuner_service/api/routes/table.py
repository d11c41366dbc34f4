"""All trials of an experiment in one answer, column by column, for tables and plots."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tuner_service.api.cached_reads import cached_read
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.paging import make_cursor, read_number_cursor
from tuner_service.api.routes.parameters import Cursor, ExperimentIdPath
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.table import TABLE_COLUMNS, table_json

TABLE_ROWS = 20_000  # most trials of one answer: some megabytes

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["trials"])


@router.get("/table")
@cached_read()
def read_table(  # noqa: PLR0913  # one argument for each query parameter
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    columns: Annotated[
        str, Query(max_length=1_000, description=f"with commas between; known: {', '.join(TABLE_COLUMNS)}")
    ] = ",".join(TABLE_COLUMNS),
    status: Annotated[list[TrialStatus] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=TABLE_ROWS)] = TABLE_ROWS,
    cursor: Cursor = None,
) -> Response:
    """Its trials by number: `columns` has one array for each column, all of one length."""
    wanted = list(dict.fromkeys(columns.split(",")))
    unknown = [column for column in wanted if column not in TABLE_COLUMNS]
    if unknown:
        message = f"{unknown[0]!r} is no column; known: {', '.join(TABLE_COLUMNS)}"
        raise InputError([Fault(pointer="/query/columns", message=message)])
    statuses = [wanted.value for wanted in status or ()]
    after = read_number_cursor(cursor)
    with services.queries.snapshot():
        services.experiments.find(experiment_id)
        entries = services.queries.trial_entries(experiment_id, after=after, limit=limit + 1, statuses=statuses)
    following = f'"{make_cursor(str(entries[limit - 1].number))}"' if len(entries) > limit else "null"
    table = table_json(entries[:limit], wanted, now=services.experiments.clock.now())
    return Response(f'{{"columns":{table},"next":{following}}}'.encode(), media_type="application/json")
