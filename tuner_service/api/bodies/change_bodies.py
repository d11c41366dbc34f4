"""The bodies of live changes, added trials, imports and clones."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from tuner_service.api.bodies.names import checked_name, checked_tags
from tuner_service.api.bodies.quantities import parse_duration
from tuner_service.api.bodies.schemas import (
    MAX_NAME,
    MAX_NOTE,
    MAX_PRIORITY,
    MAX_SEED,
    MAX_TAGS,
    Body,
    BudgetRaiseBody,
    until_faulty,
)

MAX_NUMBER = 2**31 - 1
MAX_RETRIED = 1_000
MAX_RESULTS = 10_000  # of one import
MAX_STEP = 2**53
SPECIAL_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def number_of(value: Any) -> Any:
    """NaN and the infinities stand as texts in JSON."""
    return SPECIAL_NUMBERS.get(value, value) if isinstance(value, str) else value


# Text wherever it is given: no experiment is without a name.
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(checked_name)]


def _left_out() -> Any:
    return None


class ChangeBody(Body):
    """A field left out stays as it is; ``tags`` replaces all of them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: Name = Field(default_factory=_left_out)
    project: Name = Field(default_factory=_left_out)
    note: str | None = Field(default=None, max_length=MAX_NOTE)
    tags: Annotated[list[str] | None, AfterValidator(checked_tags)] = Field(default=None, max_length=MAX_TAGS)
    priority: int | None = Field(default=None, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    preemptible: bool | None = None
    budget: BudgetRaiseBody = Field(default_factory=BudgetRaiseBody)


class SearchSpaceBody(Body):
    """``search_space`` as in the experiment file."""

    search_space: dict[str, Any] = Field(json_schema_extra={"minProperties": 1})


class AddTrialBody(Body):
    parameters: dict[str, Any]
    outside_space: bool = False


class RetryBody(Body):
    """Every failed trial that was not tried again yet, unless ``numbers`` names some."""

    numbers: list[Annotated[int, Field(ge=1, le=MAX_NUMBER)]] | None = Field(
        default=None, min_length=1, max_length=MAX_RETRIED
    )


class ResultBody(Body):
    """``value`` is of the objective; null for a failed one."""

    most_unknown = 1

    parameters: dict[str, Any]
    value: Annotated[Annotated[float, Field(allow_inf_nan=True)] | None, BeforeValidator(number_of)] = None
    status: Literal["succeeded", "early_stopped", "failed"] | None = None
    step: int | None = Field(default=None, ge=-MAX_STEP, le=MAX_STEP)


def _result_bodies(value: Any) -> Any:
    return until_faulty(ResultBody, value, most=MAX_RESULTS)


class ImportBody(Body):
    """Either ``results``, or the id of an earlier ``experiment``."""

    results: Annotated[list[ResultBody] | None, BeforeValidator(_result_bodies)] = Field(
        default=None, min_length=1, max_length=MAX_RESULTS
    )
    experiment: str | None = Field(default=None, min_length=1, max_length=64)
    outside_space: bool = False


class CloneBody(Body):
    """The seed is drawn anew unless it is given; a budget left out stays as it is."""

    name: Name = Field(default_factory=_left_out)
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED)
    budget: BudgetRaiseBody = Field(default_factory=BudgetRaiseBody)


class CollectBody(Body):
    """``older_than``: for so long they have ended, at least."""

    older_than: Annotated[
        float,
        BeforeValidator(parse_duration, json_schema_input_type=float | str),
        Field(description='seconds, or such as "90d"'),
    ]
    dry_run: bool = False
