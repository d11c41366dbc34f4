"""The nodes of the service, described."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tuner_service.api.described.parts import Bytes, Moment, Next, Shown, TrialId


class Agent(Shown):
    id: Annotated[str, Field(examples=["agent-1"])]
    host: Annotated[str, Field(examples=["node-7"])]
    pid: Annotated[int, Field(examples=[4711])]
    cpus: Annotated[float, Field(examples=[64])]
    memory_bytes: Bytes
    devices: Annotated[int, Field(description="how many", examples=[8])]
    labels: Annotated[dict[str, str], Field(examples=[{"zone": "b"}])]
    joined: Annotated[
        bool, Field(description="it shares no folder with the service: by `tuner agent join`, or of a Ray cluster")
    ]
    state: Annotated[
        Literal["ready", "in_trouble", "draining", "drained", "away"],
        Field(description="only where it is `ready`, trials are started; `message` says why and what to do"),
    ]
    message: Annotated[str, Field(description="the trouble, and what to do about it", examples=[""])]
    notes: Annotated[list[str], Field(description="what is worth knowing of a node that works", examples=[[]])]
    user: Annotated[str, Field(description="that its trials run as", examples=["alice (1000)"])]
    python: Annotated[str, Field(examples=["3.12.3"])]
    clock_ahead_s: Annotated[float, Field(description="of the service's clock", examples=[0.002])]
    free_bytes: Annotated[int | None, Field(description="on the disk of its home", examples=[80_000_000_000])]
    connected_at: Moment | None
    trials: Annotated[list[TrialId], Field(description="that run there")]


class Agents(Shown):
    items: list[Agent]
    next: Next
