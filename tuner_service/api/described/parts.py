"""What answers are made of, for the schema and the tests: no answer is checked against it while it is given."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


def _open(schema: dict[str, Any]) -> None:
    """Answers may gain fields, and a client leaves out those it does not know."""
    schema.pop("additionalProperties", None)


class Shown(BaseModel):
    """An object of an answer, with every field that it has."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_open)


class Mark(StrEnum):
    """In place of a number that JSON has not."""

    NAN = "NaN"
    INFINITY = "Infinity"
    MINUS_INFINITY = "-Infinity"


Number = float | Mark
Moment = Annotated[str, Field(description="RFC 3339, UTC", examples=["2026-11-22T10:00:00.000Z"])]
Reported = Annotated[
    str | None,
    Field(
        description="RFC 3339, UTC: when the trial last reported anything; null before that, and once it has ended",
        examples=["2026-11-22T10:00:00.000Z"],
    ),
]
Seconds = Annotated[float, Field(description="seconds", examples=[12.5])]
ExperimentId = Annotated[str, Field(examples=["8f3k2"])]
TrialId = Annotated[str, Field(description="experiment and number", examples=["8f3k2/12"])]
Count = Annotated[int, Field(examples=[12])]
Digest = Annotated[str, Field(examples=["sha256:" + "0" * 64])]
Bytes = Annotated[int, Field(description="bytes", examples=[1_048_576])]
Parameters = Annotated[dict[str, Any], Field(examples=[{"lr": 0.01, "batch": 32}])]
Values = Annotated[
    dict[str, Number], Field(description="by the names of the metrics", examples=[{"loss": 0.25, "accuracy": 0.91}])
]
SearchSpace = Annotated[
    dict[str, Any], Field(examples=[{"lr": {"type": "float", "low": 0.0001, "high": 0.1, "log": True}}])
]
Next = Annotated[str | None, Field(description="`cursor` of the next page; null after the last", examples=["MTAw"])]
Counts = Annotated[
    dict[str, int], Field(description="trials by their status", examples=[{"succeeded": 11, "running": 1}])
]


class Fault(Shown):
    pointer: Annotated[str, Field(description="a JSON pointer into the request", examples=["/budget/trials"])]
    detail: Annotated[str, Field(examples=["should be at least 1"])]


class Problem(Shown):
    """What went wrong (RFC 9457)."""

    type: Annotated[str, Field(examples=["urn:tuner:problem:not-found"])]
    title: Annotated[str, Field(examples=["Not Found"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(examples=["there is no experiment '8f3k2'"])]
    allowed: Annotated[list[str], Field(description="of a conflict: what it is in a state for", examples=[[]])] = []
    errors: Annotated[list[Fault], Field(description="of an input: all that is wrong with it", examples=[[]])] = []
