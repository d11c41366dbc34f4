"""Pictures of an experiment, for other eyes: chats, reports, papers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tuner_service.api.dependencies import CurrentServices
from tuner_service.api.routes.analyses import live_revision
from tuner_service.api.routes.parameters import ExperimentIdPath
from tuner_service.api.single_flight import SingleFlight
from tuner_service.figures.process import draw_apart, require_matplotlib
from tuner_service.service.experiments import Services
from tuner_service.service.questions import (
    AXES_SHOWN,
    CURVE_POINTS,
    CURVES_SHOWN,
    EXACT_DIGITS,
    Check,
    Kind,
    Question,
    Reply,
)

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])
TRIALS_DRAWN = 20_000  # the first of them


class Picture(StrEnum):
    HISTORY = "history"
    CURVES = "curves"
    PARALLEL = "parallel"
    IMPORTANCE = "importance"
    SLICES = "slices"
    PARETO = "pareto"
    TIMELINE = "timeline"


VIEWS = {
    Picture.HISTORY: (Kind.TABLE, Kind.BEST),
    Picture.CURVES: (Kind.CURVES, Kind.BEST),
    Picture.PARALLEL: (Kind.TABLE, Kind.BEST),
    Picture.IMPORTANCE: (Kind.IMPORTANCE,),
    Picture.SLICES: (Kind.SLICES,),
    Picture.PARETO: (Kind.PARETO,),
    Picture.TIMELINE: (Kind.TIMELINE,),
}
MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml"}
PictureKind = Annotated[Picture, Query(description="what it shows")]


@router.get("/plot.png")
async def draw_png(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, kind: PictureKind = Picture.HISTORY
) -> Response:
    """A picture, drawn in a process of its own, one at a time. 501 where the extra `plot` is not installed."""
    return await _drawn(request, services, experiment_id, kind, "png")


@router.get("/plot.svg")
async def draw_svg(
    request: Request, experiment_id: ExperimentIdPath, services: CurrentServices, *, kind: PictureKind = Picture.HISTORY
) -> Response:
    """The same as lines and text."""
    return await _drawn(request, services, experiment_id, kind, "svg")


async def _drawn(request: Request, services: Services, experiment_id: str, kind: Picture, form: str) -> Response:
    experiment = await asyncio.to_thread(services.experiments.find, experiment_id)
    await asyncio.to_thread(require_matplotlib)
    now = services.experiments.clock.now()

    def work(check: Check) -> Reply:
        views = {
            name.value: json.loads(services.analyst.ask(_question(experiment_id, name, kind, now), check).body)
            for name in VIEWS[kind]
        }
        data = draw_apart({"kind": kind.value, "form": form, "views": views}, check)
        tag = f'W/"{hashlib.sha256(data).hexdigest()[:32]}"'
        return Reply(body=data, tag=tag, media_type=MEDIA_TYPES[form])

    drawings = request.app.state.drawings
    assert isinstance(drawings, SingleFlight)  # noqa: S101  # set by create_app before any request
    revision = await live_revision(services, experiment, now=now)
    response = await drawings.answer(request, (kind.value, form, experiment_id), revision=revision, work=work)
    if response.status_code == 200:
        response.headers["Content-Disposition"] = f'inline; filename="{experiment_id}-{kind.value}.{form}"'
    return response


def _question(experiment_id: str, name: Kind, kind: Picture, now: float) -> Question:
    options: dict[str, Any] = {}
    match name:
        case Kind.TABLE:
            columns = ["number", "value", *(["parameters.*"] if kind is Picture.PARALLEL else [])]
            options = {"columns": columns, "statuses": [], "after": 0, "limit": TRIALS_DRAWN, "since": None}
            options |= {"digits": EXACT_DIGITS, "members": AXES_SHOWN, "now": now}
        case Kind.CURVES:
            options = {"limit": CURVES_SHOWN, "points": CURVE_POINTS}
        case Kind.TIMELINE:
            options = {"now": now}
        case _:
            pass
    return Question(kind=name, experiment_id=experiment_id, options=options)
