"""Parameters of paths and queries that several routes take."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from tuner_service.api.dependencies import WHOLE_NUMBER
from tuner_service.api.routes.paging import CURSOR_PATTERN, PAGE_LIMIT

MAX_WAIT_S = 60.0
DEFAULT_WAIT_S = 30.0
MAX_NUMBER = 2**31 - 1

ExperimentIdPath = Annotated[str, Path(min_length=1, max_length=64)]
Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT)]
Cursor = Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="`next` of the page before")]
WaitFor = Annotated[Literal["ended"] | None, Query(description="answer only once it has ended, or after `timeout`")]
Timeout = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds")]


def _in_digits(value: object) -> object:
    if isinstance(value, str) and not WHOLE_NUMBER.pattern.fullmatch(value):
        raise PydanticCustomError("digits", "should be a whole number in digits")
    return value


Number = Annotated[int, Path(ge=1, le=MAX_NUMBER), BeforeValidator(_in_digits)]
