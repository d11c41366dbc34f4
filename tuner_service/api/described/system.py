"""Answers about the service, its nodes and its devices."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tuner_service.api.described.parts import Bytes, Next, Shown, TrialId


class Health(Shown):
    status: Literal["ok"]
    pid: Annotated[int, Field(examples=[4711])]


class Readiness(Shown):
    ready: Annotated[bool, Field(examples=[True])]
    parts: Annotated[
        dict[str, str], Field(description="`ok`, or the trouble", examples=[{"database": "ok", "runner": "ok"}])
    ]


class Version(Shown):
    version: Annotated[str, Field(examples=["1.2.3"])]
    api: Literal["v1"]
    agent_protocols: Annotated[list[int], Field(examples=[[1]])]


class Option(Shown):
    name: Annotated[str, Field(examples=["startup_trials"])]
    default: Annotated[Any, Field(examples=[10])]
    meaning: Annotated[str, Field(examples=["random suggestions before the first of the model"])]


class KnownAlgorithm(Shown):
    name: Annotated[str, Field(examples=["tpe"])]
    meaning: Annotated[str, Field(examples=["a tree-structured Parzen estimator"])]
    options: list[Option]


class Algorithms(Shown):
    tuners: list[KnownAlgorithm]
    assessors: list[KnownAlgorithm]
    advisors: list[KnownAlgorithm]


class Holder(Shown):
    id: TrialId
    share: Annotated[float, Field(examples=[1.0])]


class Device(Shown):
    id: Annotated[str, Field(examples=["GPU-3f1c"])]
    uuid: Annotated[str, Field(examples=["GPU-3f1c"])]
    name: Annotated[str, Field(examples=["NVIDIA H100"])]
    agent: Annotated[str, Field(examples=["agent-1"])]
    memory_bytes: Bytes
    state: Literal["free", "held", "occupied", "lost"]
    occupied: Annotated[bool, Field(description="another program uses it")]
    lost: Annotated[str, Field(description="why it cannot be used any more", examples=[""])]
    share: Annotated[float, Field(description="that trials hold", examples=[1.0])]
    trials: list[Holder]


class Devices(Shown):
    items: list[Device]
    next: Next


class QuotaGroup(Shown):
    id: Annotated[str, Field(examples=["vision"])]
    name: Annotated[str, Field(examples=["vision"])]
    gpus: Annotated[float | None, Field(description="null: as many as there are", examples=[4.0])]
    borrows: Annotated[bool, Field(description="it may use what others leave idle", examples=[True])]
    used: Annotated[float, Field(examples=[2.5])]
    experiments: Annotated[list[str], Field(description="that draw from it", examples=[["8f3k2"]])]


class QuotaGroups(Shown):
    items: list[QuotaGroup]
    next: Next
