"""The body of a quota group."""

from __future__ import annotations

from pydantic import Field

from tuner_service.api.bodies.schemas import MAX_GPUS, Body

MAX_GROUP_GPUS = 100 * MAX_GPUS


class QuotaGroupBody(Body):
    """``gpus`` null: as many as there are. ``borrows``: it may use what other groups leave idle."""

    gpus: float | None = Field(default=None, ge=0, le=MAX_GROUP_GPUS)
    borrows: bool = True
