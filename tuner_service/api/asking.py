"""Questions to the analyst: equal ones are asked once, and answers are kept for as long as they are true."""

from __future__ import annotations

import json

from fastapi import Request
from starlette.responses import Response

from tuner_service.api.single_flight import SingleFlight
from tuner_service.service.experiments import Services
from tuner_service.service.questions import Question


def takes_gzip(request: Request) -> bool:
    """Whether the client says so. Of what it prefers to what nothing is read: JSON is a third as long in gzip."""
    for entry in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = entry.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


async def answer(request: Request, services: Services, question: Question, *, revision: str | None) -> Response:
    """``revision`` is another one whenever the answer may be another; None: it cannot be told now."""
    shared = request.app.state.single_flight
    assert isinstance(shared, SingleFlight)  # noqa: S101  # set by create_app before any request
    options = {name: value for name, value in question.options.items() if name != "now"}
    encoding = "gzip" if question.compressed else ""
    key = (question.kind.value, question.experiment_id, json.dumps(options, sort_keys=True), encoding)
    return await shared.answer(
        request, key, revision=revision, work=lambda check: services.analyst.ask(question, check)
    )
