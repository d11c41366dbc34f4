"""The body of a quota group."""

from __future__ import annotations

from pydantic import Field

from tuner_service.api.bodies.schemas import MAX_GPUS, Body, GroupSize

MAX_GROUP_GPUS = 100 * MAX_GPUS
MAX_GROUP_CPUS = 1e6


class QuotaGroupBody(Body):
    """A quota that is null: as much as there is. ``borrows``: it may use what other groups leave idle."""

    gpus: float | None = Field(default=None, ge=0, le=MAX_GROUP_GPUS)
    cpus: float | None = Field(default=None, ge=0, le=MAX_GROUP_CPUS)
    memory: GroupSize = None
    borrows: bool = True
