"""Trials of an experiment column by column, for tables and plots: all of them, or what has changed."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tuner_service.analyst.table import SCREEN_DIGITS, SILENT, TABLE_COLUMNS, column_fault
from tuner_service.api.asking import answer, takes_gzip
from tuner_service.api.cached_reads import shared_by_event
from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.analyses import LIVE, live_revision
from tuner_service.api.routes.paging import read_number_cursor
from tuner_service.api.routes.parameters import Cursor, ExperimentIdPath
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.trial import FINAL_STATUSES, TrialStatus
from tuner_service.service.questions import EXACT_DIGITS, TABLE_ROWS, TABLE_WIDTH, Kind, Question

COLUMNS_LENGTH = 20_000  # characters
DEFAULT_COLUMNS = (
    "number", "status", "reason", "value", "step", "attempts", "started_at", "ended_at", "running_s", "parameters",
)  # fmt: skip

_NOT_ENDED = frozenset(TrialStatus) - FINAL_STATUSES  # one that has reported is silent, though it is paused or waits

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["trials"])


@router.get("/table")
@shared_by_event()
async def read_table(  # noqa: PLR0913  # one argument for each query parameter
    request: Request,
    experiment_id: ExperimentIdPath,
    services: CurrentServices,
    *,
    columns: Annotated[
        str,
        Query(
            max_length=COLUMNS_LENGTH,
            description=f"with commas between; known: {', '.join(TABLE_COLUMNS)}, and each of `parameters.NAME`, "
            "`final.METRIC`, `last.METRIC` by itself, or `parameters.*` for all of them",
        ),
    ] = ",".join(DEFAULT_COLUMNS),
    status: Annotated[list[TrialStatus] | None, Query()] = None,
    since: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{8}\\.[0-9]{1,18}$", description="`revision` of an earlier answer: only what changed"),
    ] = None,
    digits: Annotated[
        int, Query(ge=1, le=EXACT_DIGITS, description=f"of each number; {EXACT_DIGITS}: exactly as it is")
    ] = SCREEN_DIGITS,
    limit: Annotated[int, Query(ge=1, le=TABLE_ROWS)] = TABLE_ROWS,
    cursor: Cursor = None,
) -> Response:
    """Its trials by number: `columns` has a column by each name, all of one length.

    A column is an array; of words an object: `words` has the different ones, and `codes` for each trial the place of
    its word, -1 where there is none. The strings "NaN", "Infinity" and "-Infinity" stand for numbers that JSON has not.
    The answer to `since` has only trials that have changed after that revision, and names it; where its `since` is
    null, the revision is known no more, and the answer is the whole. Keep the `revision` of the first page.
    """
    found = await asyncio.to_thread(services.experiments.find, experiment_id)
    now = services.experiments.clock.now()
    named = _named(columns)
    question = Question(
        kind=Kind.TABLE,
        experiment_id=found.id,
        options={
            "columns": named,
            "statuses": _statuses(status, since),
            "after": read_number_cursor(cursor),
            "limit": limit,
            "since": since,
            "digits": digits,
            "now": now,
        },
        compressed=takes_gzip(request),
    )
    counting = _NOT_ENDED if SILENT in named else LIVE
    revision = await live_revision(services, found, now=now, counting=counting)
    return await answer(request, services, question, revision=revision)


def _named(columns: str) -> list[str]:
    wanted = list(dict.fromkeys(columns.split(",")))
    faults = [message for message in map(column_fault, wanted) if message]
    if len(wanted) > TABLE_WIDTH:
        faults.append(f"names {len(wanted)} columns; at most {TABLE_WIDTH} are told at once")
    if faults:
        raise InputError([Fault(pointer="/query/columns", message=message) for message in faults])
    return wanted


def _statuses(status: list[TrialStatus] | None, since: str | None) -> list[str]:
    if status and since is not None:
        message = "cannot go with `since`: a trial that has another status now would not be told; filter what you keep"
        raise InputError([Fault(pointer="/query/status", message=message)])
    return [wanted.value for wanted in status or ()]
