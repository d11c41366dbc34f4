"""Pictures are drawn in a process each, so that no library that draws is part of the service, nor of its memory."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from typing import Any

from tuner_service.domain.errors import NotInstalledError
from tuner_service.executors.one_off import PieceOfWork, run_apart
from tuner_service.service.questions import Check

DRAWING_LIMIT_S = 30.0


def require_matplotlib() -> None:
    """NotInstalledError that names the extra."""
    if importlib.util.find_spec("matplotlib") is None:
        raise NotInstalledError(
            "pictures need matplotlib, which is not installed beside the service: pip install 'tuner-service[plot]'"
        )


def draw_apart(asked: dict[str, Any], check: Check) -> bytes:
    """The picture of ``{"kind", "form", "views"}``. ``check`` as questions.Analyst.ask has it."""
    require_matplotlib()
    work = PieceOfWork(
        module="tuner_service.figures.main",
        what="the picture",
        limit_s=DRAWING_LIMIT_S,
        instead="take the data instead",
    )
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(asked).encode())
        with run_apart(work, given, check) as drawn:
            return drawn.read()
