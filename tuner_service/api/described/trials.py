"""Answers about trials."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner_service.api.described.assets import AssetFiles
from tuner_service.api.described.experiments import Held, Inputs
from tuner_service.api.described.parts import (
    Bytes,
    Count,
    Digest,
    Moment,
    Next,
    Number,
    Parameters,
    Reported,
    Seconds,
    Shown,
    TrialId,
    Values,
)
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus

Step = Annotated[int, Field(examples=[30])]


class Last(Shown):
    """What was reported last."""

    step: Step | None
    metrics: Values


class Report(Shown):
    attempt: Annotated[int, Field(examples=[1])]
    step: Step | None
    values: Values


class Output(Shown):
    """What a trial left."""

    asset: Annotated[Digest | None, Field(description="null: nothing of it could be kept")]
    size: Bytes
    files: Count
    complete: Annotated[bool, Field(description="nothing was left out", examples=[True])]
    message: Annotated[str, Field(description="what was left out, and why", examples=[""])]
    attempt: Annotated[int, Field(examples=[1])]
    step: Annotated[int | None, Field(description="of the checkpoint at which it was taken", examples=[None])]


class Trial(Shown):
    number: Count
    id: TrialId
    status: TrialStatus
    reason: TrialReason
    message: Annotated[str, Field(examples=[""])]
    parameters: Parameters
    inputs: Inputs
    source: Annotated[str, Field(description="who asked for it", examples=["tuner"])]
    final: Values
    value: Annotated[Number | None, Field(description="of the first objective")]
    last: Last | None
    output: Output | None
    attempts: Annotated[int, Field(examples=[1])]
    retry_of: Annotated[int | None, Field(examples=[9])]
    forked_from: Annotated[int | None, Field(examples=[3])]
    until_step: Step | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    running_s: Seconds
    reported_at: Reported
    metrics: Annotated[list[Report] | None, Field(description="where `metrics` was asked for", examples=[None])] = None


class Exit(Shown):
    """How a process ended."""

    cause: Annotated[str, Field(examples=["exited"])]
    code: Annotated[int | None, Field(examples=[0])]
    signal: Annotated[int | None, Field(examples=[9])]
    stop_reason: Annotated[str | None, Field(examples=[""])]
    peak_memory_bytes: Bytes | None
    memory_limit_bytes: Bytes | None
    processor_s: Seconds | None
    isolation: Annotated[str | None, Field(examples=["fork"])]
    why_spawned: Annotated[str | None, Field(examples=[""])]
    tail: Annotated[str | None, Field(description="the end of its errors", examples=[""])]


class NodeOfAttempt(Shown):
    """What of an attempt of several nodes runs on one of them."""

    node: Annotated[int, Field(examples=[1])]
    agent: Annotated[str, Field(examples=["agent-2"])]
    host: Annotated[str, Field(description="empty until the node is ready", examples=["node-2"])]
    state: Annotated[str, Field(description="preparing, ready, running or ended", examples=["running"])]
    boot_id: Annotated[str | None, Field(examples=["2f6d"])]
    pid: Annotated[int | None, Field(examples=[4711])]
    ended_at: Moment | None
    exit: Exit | None


class Attempt(Shown):
    attempt: Annotated[int, Field(examples=[1])]
    status: AttemptStatus
    message: Annotated[str, Field(examples=[""])]
    agent: Annotated[str, Field(examples=["agent-1"])]
    pid: Annotated[int | None, Field(examples=[4711])]
    restored_step: Step | None
    half_way: Annotated[
        Values | None, Field(description="final metrics reported after it was told to stop; null: it was not told")
    ]
    devices: list[Held]
    peak_gpu_bytes: Bytes | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    exit: Exit | None
    nodes: Annotated[list[NodeOfAttempt], Field(description="empty of a trial of one node")]


class TrialDetail(Trial):
    first_parameters: Parameters
    further_parameters: list[Parameters]
    attempt_details: list[Attempt]
    command: Annotated[list[str], Field(description="that runs it alone", examples=[["python", "train.py"]])]
    processes_per_node: Annotated[int, Field(description="of each attempt; each has its RANK", examples=[4])]


class Trials(Shown):
    items: list[Trial]
    next: Next


class Metric(Shown):
    attempt: Annotated[int, Field(examples=[1])]
    step: Annotated[int | None, Field(description="null of a final metric", examples=[30])]
    values: Values
    sequence: Count
    first: Annotated[bool, Field(description="algorithms saw it", examples=[True])]
    at: Moment


class Metrics(Shown):
    items: list[Metric]
    next: Next


class Checkpoint(Shown):
    attempt: Annotated[int, Field(examples=[1])]
    step: Step
    name: Annotated[str, Field(examples=["checkpoint"])]
    digest: Digest
    size: Bytes
    inline: Annotated[bool, Field(description="the database holds its bytes")]
    location: Annotated[str | None, Field(examples=[None])]
    value: Number | None
    stall_s: Annotated[Number | None, Field(description="seconds that the script waited", examples=[0.01])]
    write_s: Annotated[Number | None, Field(description="seconds that the writing took", examples=[0.2])]
    damaged: bool
    at: Moment


class Checkpoints(Shown):
    items: list[Checkpoint]
    next: Next


class ResourceSample(Shown):
    at_s: Annotated[float, Field(description="seconds since the start of the attempt", examples=[30.0])]
    memory_bytes: Annotated[int, Field(description="the most since the sample before", examples=[1_048_576])]
    cores: Annotated[float, Field(description="in use, on average since the sample before", examples=[0.97])]
    processor_s: Annotated[float, Field(description="seconds on a processor since the start", examples=[29.1])]
    processes: Annotated[int, Field(description="the most since the sample before", examples=[2])]


class Resources(Shown):
    """What an attempt used over time."""

    attempt: Annotated[int, Field(examples=[1])]
    node: Annotated[int, Field(description="of a trial of several", examples=[0])]
    ended: Annotated[bool, Field(description="no more will come", examples=[True])]
    samples: Annotated[list[ResourceSample], Field(description="in order of time, 240 at most")]


class TrialFiles(AssetFiles):
    asset: Digest
    output: Annotated[Output | None, Field(description="null of a checkpoint")]
