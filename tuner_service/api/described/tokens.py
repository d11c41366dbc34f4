"""Answers about tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner_service.api.described.parts import Moment, Next, Shown


class ListedToken(Shown):
    name: Annotated[str, Field(examples=["ann"])]
    role: Literal["admin", "operator", "read_only", "agent"]
    agent: Annotated[str | None, Field(description="the one agent that it is good for", examples=["gpu-box"])]
    state: Literal["good", "expired", "revoked"]
    created_at: Moment
    made_by: Annotated[str | None, Field(description="by the name of their token", examples=["home"])]
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Annotated[Moment | None, Field(description="about: an hour may be missing after a crash")]


class NewToken(ListedToken):
    token: Annotated[
        str,
        Field(description="shown once; what is kept is its hash", examples=["3pXq_token_of_43_characters_01234567"]),
    ]


class Tokens(Shown):
    items: list[ListedToken]
    next: Next
