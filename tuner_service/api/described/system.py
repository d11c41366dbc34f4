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
    role: Annotated[
        Literal["active", "standby"],
        Field(description="a standby is never ready, and names the address of the active service as `active`"),
    ]
    parts: Annotated[
        dict[str, str], Field(description="`ok`, or the trouble", examples=[{"database": "ok", "runner": "ok"}])
    ]
    warnings: Annotated[
        dict[str, str],
        Field(
            description="what will be a trouble unless somebody does something; empty without a token",
            examples=[{"certificate": "the TLS certificate /etc/tuner/cert.pem ends in 12 days"}],
        ),
    ]


class Version(Shown):
    version: Annotated[str, Field(examples=["1.2.3"])]
    api: Literal["v1"]
    agent_protocols: Annotated[list[int], Field(examples=[[1]])]


class Bundle(Shown):
    cpus: Annotated[int, Field(examples=[8])]
    gpus: Annotated[int, Field(examples=[1])]
    memory_bytes: Annotated[int, Field(description="0: not asked for", examples=[32_000_000_000])]


class ProvidedNode(Shown):
    agent: Annotated[str, Field(examples=["ray-1f0c2d3e4a5b"])]
    state: Literal["pending", "starting", "ready", "draining", "ending"]
    reason: Annotated[str, Field(description="why it is not ready", examples=[""])]
    busy: Annotated[bool, Field(description="whether trials run there")]
    host: Annotated[str, Field(examples=["node-7"])]
    ray_node: Annotated[str, Field(examples=["75a4b8f2ae44"])]
    cpus: Annotated[int, Field(examples=[8])]


class LostNode(Shown):
    agent: Annotated[str, Field(examples=["ray-1f0c2d3e4a5b"])]
    reason: Annotated[str, Field(examples=["its node of the cluster died"])]


class Executor(Shown):
    name: Literal["ray"]
    address: Annotated[str, Field(examples=["auto"])]
    namespace: Annotated[str, Field(description="of its actors on the cluster", examples=["tuner-3f1c2d"])]
    state: Annotated[str, Field(description="`ok`, or the trouble", examples=["ok"])]
    bridge_pid: Annotated[int | None, Field(examples=[4713])]
    wanted: Annotated[int, Field(description="nodes", examples=[3])]
    min: Annotated[int, Field(examples=[0])]
    max: Annotated[int, Field(examples=[8])]
    bundle: Bundle
    resources: Annotated[dict[str, float], Field(description="of the whole cluster", examples=[{"CPU": 16.0}])]
    nodes: list[ProvidedNode]
    lost: Annotated[list[LostNode], Field(description="lately, the newest last")]


class Executors(Shown):
    items: list[Executor]
    next: Next


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
    cpus: Annotated[float | None, Field(description="null: as many as there are", examples=[32.0])]
    memory_bytes: Annotated[int | None, Field(description="null: as much as there is", examples=[68719476736])]
    borrows: Annotated[bool, Field(description="it may use what others leave idle", examples=[True])]
    used: Annotated[float, Field(description="of the devices", examples=[2.5])]
    used_cpus: Annotated[float, Field(examples=[10.0])]
    used_memory_bytes: Annotated[int, Field(examples=[8589934592])]
    experiments: Annotated[list[str], Field(description="that draw from it", examples=[["8f3k2"]])]


class QuotaGroups(Shown):
    items: list[QuotaGroup]
    next: Next
