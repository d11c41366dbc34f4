"""Answers about who is signed in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner_service.api.described.parts import Moment, Next, Seconds, Shown

RoleName = Literal["admin", "operator", "read_only"]
TokenName = Annotated[str, Field(description="of the token that it came from", examples=["ann"])]


class SessionCode(Shown):
    code: Annotated[str, Field(description="good once", examples=["Xp2h9M_code_of_43_characters_0123456789abcde"])]
    seconds: Seconds
    path: Annotated[str, Field(description="what a browser opens", examples=["/login#code=Xp2h9M_code"])]


class Session(Shown):
    id: Annotated[str, Field(examples=["a939b85e64f1"])]
    name: TokenName
    role: RoleName
    created_at: Moment
    expires_at: Moment
    last_used_at: Moment | None
    address: Annotated[str | None, Field(description="it was used last from there", examples=["10.0.0.7"])]
    browser: Annotated[str | None, Field(description="what it called itself", examples=["Mozilla/5.0 (X11; Linux)"])]
    current: Annotated[bool, Field(description="whether this request was sent with it", examples=[True])]


class Caller(Shown):
    name: TokenName
    role: RoleName
    session: Annotated[Session | None, Field(description="null for who sent a token")]


class EndedSessions(Shown):
    ended: Annotated[int, Field(description="how many there were", examples=[2])]


class Sessions(Shown):
    items: list[Session]
    next: Next
