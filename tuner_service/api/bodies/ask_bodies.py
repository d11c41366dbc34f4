"""The body with which an evaluator tells what became of the trial that it asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT, STEP_MAX
from tuner_service.api.bodies.change_bodies import number_of
from tuner_service.api.bodies.names import checked_metric
from tuner_service.api.bodies.schemas import Body
from tuner_service.dispatcher.limits import DETAIL_LIMIT
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.service.asking import Told

MAX_TOKEN = 200

Value = Annotated[Annotated[float, Field(allow_inf_nan=True)], BeforeValidator(number_of)]


def _named(values: dict[str, float]) -> dict[str, float]:
    for name in values:
        if not name or len(name) > METRIC_NAME_LIMIT:
            raise ValueError(f"{name!r:.40} should be a name of 1 to {METRIC_NAME_LIMIT} characters")
        checked_metric(name)
    return values


class TellBody(Body):
    """With a ``step`` a report of it, else the end of the trial: its final values, or the ``error`` it failed with.

    ``value`` is of the objective. ``ended`` false, without a step, says only that the evaluator is alive.
    """

    token: str = Field(min_length=1, max_length=MAX_TOKEN)
    step: int | None = Field(default=None, ge=0, lt=STEP_MAX)
    value: Value | None = None
    values: Annotated[dict[str, Value], Field(max_length=METRICS_LIMIT), AfterValidator(_named)] = Field(
        default_factory=dict
    )
    error: str | None = Field(default=None, max_length=DETAIL_LIMIT)
    ended: bool | None = None


def told_of(body: TellBody, spec: ExperimentSpec) -> Told:
    """InputError with every fault of what cannot be told together."""
    metric, values, faults = spec.objective.metric, dict(body.values), []
    if body.value is not None and metric in values:
        faults.append(Fault(pointer="/value", message=f"and values hold {metric!r} both; leave one out"))
    elif body.value is not None:
        values[metric] = body.value
    if body.error is not None and (values or body.step is not None):
        faults.append(Fault(pointer="/error", message="is the end of a trial without values; leave those out"))
    if body.ended and body.step is not None:
        faults.append(Fault(pointer="/ended", message="with a step; tell the report first, and then the end"))
    if body.ended is False and body.step is None and (values or body.error is not None):
        faults.append(Fault(pointer="/ended", message="is false, and what is told is an end; give a step, or leave it"))
    if faults:
        raise InputError(faults)
    ends = body.step is None if body.ended is None else body.ended
    return Told(token=body.token, values=values, step=body.step, ends=ends, error=body.error)
