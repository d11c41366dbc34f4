"""Bodies about tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tuner_service.api.bodies.quantities import parse_duration
from tuner_service.api.bodies.schemas import Body

LEAST_LASTING_S = 1.0


def _lasting(value: object) -> float:
    seconds = parse_duration(value)
    if seconds < LEAST_LASTING_S:
        raise ValueError("should be a second at least; left out, the token does not expire")
    return seconds


Lasting = Annotated[float, BeforeValidator(_lasting)]


class NewTokenBody(Body):
    """``role`` agent: for the agent of that ``name`` alone. ``expires_in``: a duration such as "30d"; null: never."""

    name: str = Field(max_length=100)
    role: Literal["admin", "operator", "read_only", "agent"]
    expires_in: Lasting | None = None


class RotationBody(Body):
    """``expires_in`` left out: the new one lasts as long as the one before was to last."""

    expires_in: Lasting | None = None
