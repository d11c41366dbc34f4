"""The body of a request that signs in."""

from __future__ import annotations

from pydantic import Field, model_validator

from tuner_service.api.bodies.schemas import Body

MAX_SECRET = 1_000  # characters


class SessionBody(Body):
    """One of the two: a ``code`` of `tuner open`, or a ``token``."""

    code: str | None = Field(default=None, max_length=MAX_SECRET)
    token: str | None = Field(default=None, max_length=MAX_SECRET)

    @model_validator(mode="after")
    def _one_of_them(self) -> SessionBody:
        if (self.code is None) == (self.token is None):
            raise ValueError("send either a code or a token")
        return self
