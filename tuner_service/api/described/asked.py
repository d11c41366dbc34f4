"""Answers to evaluators that run themselves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner_service.api.described.parts import Count, Moment, Parameters, Seconds, Shown, TrialId
from tuner_service.domain.trial import TrialReason, TrialStatus


class AskedTrial(Shown):
    """A trial that is held by `token`."""

    id: TrialId
    number: Count
    attempt: Annotated[int, Field(examples=[1])]
    token: Annotated[str, Field(description="to tell with", examples=["ask-5f2c"])]
    parameters: Parameters
    seed: Annotated[int, Field(examples=[1_234_567])]
    last_step: Annotated[int | None, Field(description="up to which reports of it count already", examples=[None])]
    held: Annotated[bool, Field(examples=[True])]
    lease: Seconds
    held_until: Annotated[Moment | None, Field(description="unless something is told before")]


class ToldTrial(Shown):
    id: TrialId
    number: Count
    status: TrialStatus
    reason: TrialReason
    message: Annotated[str, Field(examples=[""])]
    decision: Annotated[Literal["continue", "stop"], Field(description="whether to go on")]
    taken: Annotated[bool, Field(description="what was told is kept", examples=[True])]
