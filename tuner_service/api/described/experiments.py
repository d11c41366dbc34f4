"""Answers about experiments."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from tuner_service.api.described.parts import (
    Bytes,
    Count,
    Counts,
    Digest,
    ExperimentId,
    Moment,
    Next,
    Number,
    Parameters,
    Reported,
    SearchSpace,
    Seconds,
    Shown,
)
from tuner_service.domain.archives import ArchivePhase
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus, Goal
from tuner_service.domain.trial import AttemptStatus


class Objective(Shown):
    metric: Annotated[str, Field(examples=["loss"])]
    goal: Goal
    optional: Annotated[bool, Field(description="a trial may end without it")] = False


Objectives = Annotated[
    Objective | list[Objective], Field(description="one, or several as a list: as the experiment file has it")
]


Inputs = Annotated[
    dict[str, str | list[str]],
    Field(
        description="by parameter, the assets whose paths trials are given, by name and short digest",
        examples=[{"data": "digits@3 (sha256:3f9a1c02d5e7)"}],
    ),
]


class Budget(Shown):
    trials: Annotated[int | None, Field(examples=[100])]
    parallel: Annotated[int, Field(examples=[4])]
    duration: Annotated[float | None, Field(description="seconds", examples=[7200.0])]
    failures: Annotated[int | None, Field(examples=[10])]


class Best(Shown):
    number: Count
    value: Number | None
    parameters: Parameters | None


class Archive(Shown):
    """Where the metrics of an ended experiment are, while the database has not, or will not have, all of them."""

    phase: ArchivePhase
    asset: Digest | None
    reports: Annotated[int, Field(description="that it holds", examples=[120_000])]
    bytes: Bytes
    at: Moment
    message: Annotated[str, Field(description="why it could not be made or put back", examples=[""])]


class CollectedExperiment(Shown):
    """One that ended so long ago."""

    id: ExperimentId
    name: Annotated[str, Field(examples=["digits"])]
    status: ExperimentStatus
    ended_at: Moment | None
    trials: Count
    reports: Count
    bytes: Annotated[int, Field(description="about what its removal gives back", examples=[1_048_576])]


class KeptExperiment(Shown):
    """One that was due, and was resumed or deleted before its turn came."""

    id: ExperimentId
    why: Annotated[str, Field(examples=["experiment 8f3k2 is running and cannot be deleted; allowed: pause, stop"])]


class Collected(Shown):
    items: list[CollectedExperiment]
    kept: Annotated[list[KeptExperiment], Field(description="those that were not removed, and are no items")]
    removed: Annotated[bool, Field(description="false: they were only looked up")]


class Experiment(Shown):
    """An entry of the list of experiments."""

    id: ExperimentId
    name: Annotated[str, Field(examples=["digits"])]
    status: ExperimentStatus
    reason: ExperimentReason
    message: Annotated[str, Field(examples=[""])]
    objective: Objectives
    budget: Budget
    counts: Counts
    best: Best | None
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    running_s: Seconds
    project: Annotated[str | None, Field(examples=["vision"])]
    note: Annotated[str, Field(examples=["with augmentation"])]
    tags: Annotated[list[str], Field(examples=[["baseline"]])]
    priority: Annotated[int, Field(examples=[0])]
    archive: Archive | None


class Algorithm(Shown):
    """A tuner, an assessor or an advisor: by its name, or a class of the user's."""

    name: Annotated[str | None, Field(examples=["tpe"])] = None
    class_: Annotated[str | None, Field(alias="class", examples=["my_package.tuner:MyTuner"])] = None
    args: Annotated[dict[str, Any], Field(examples=[{}])]


class Held(Shown):
    uuid: Annotated[str, Field(examples=["GPU-3f1c"])]
    share: Annotated[float, Field(description="1 is all of it", examples=[1.0])]


class Running(Shown):
    """An attempt that lives."""

    number: Count
    attempt: Annotated[int, Field(examples=[1])]
    status: AttemptStatus
    agent: Annotated[str, Field(examples=["agent-1"])]
    pid: Annotated[int | None, Field(examples=[4711])]
    devices: list[Held]
    step: Annotated[int | None, Field(examples=[30])]
    value: Number | None
    reported_at: Reported


class TrialForm(Shown):
    """How a trial is run: the `trial` of the experiment file, with every default."""

    model_config = ConfigDict(extra="allow")

    code: Annotated[
        Digest | dict[str, str] | None,
        Field(description="a digest of files, or an asset", examples=["sha256:" + "0" * 64]),
    ]
    command: Annotated[
        list[str] | None, Field(description="null: an evaluator asks for its trials", examples=[["python", "train.py"]])
    ]
    environment: Annotated[
        dict[str, Any], Field(description="null in place of a value for who may only read", examples=[{"SEED": "7"}])
    ]
    resources: Annotated[dict[str, Any], Field(examples=[{"cpus": 1.0, "gpus": 0.0}])]


class ExperimentFile(Shown):
    """What was asked for, with every default."""

    seed: Annotated[int, Field(examples=[7])]
    search_space: SearchSpace
    tuner: Algorithm | None
    assessor: Algorithm | None
    advisor: Algorithm | None
    trial: TrialForm
    deterministic: bool
    algorithm_timeout: Seconds
    workers: Annotated[int, Field(examples=[1])]
    warm_start: Annotated[list[str], Field(examples=[["7d2h1"]])]
    quota_group: Annotated[str, Field(examples=["default"])]
    preemptible: Annotated[
        bool, Field(description="its trials may have to leave for a higher priority", examples=[False])
    ]
    executor: Annotated[
        dict[str, Any] | None,
        Field(description="whose nodes its trials may use; null: any", examples=[{"name": "ray"}]),
    ]
    on_end: Annotated[list[str], Field(examples=[["mail"]])]
    on_pause: Annotated[list[str], Field(examples=[[]])]
    on_failures: Annotated[list[str], Field(examples=[[]])]


class ExperimentDetail(Experiment, ExperimentFile):
    """One experiment, with what was asked for and what runs now."""

    detail: Annotated[str, Field(description="the traceback, where there is one", examples=[""])]
    queues: Annotated[dict[str, int], Field(description="lines that wait for each algorithm", examples=[{"tuner": 0}])]
    waits_for: Annotated[str | None, Field(description="what a waiting trial would need", examples=["1 GPU"])]
    no_node: Annotated[
        str | None, Field(description="why a waiting trial is started on no node now", examples=["gpu-3 is drained"])
    ]
    inputs: Inputs
    chosen: Annotated[
        dict[str, str], Field(description="why `auto` was taken, or what it chose, and what it does now", examples=[{}])
    ]
    left_out: Annotated[list[str], Field(description="variables that trials are not given", examples=[[]])]
    not_set: Annotated[list[str], Field(description="variables that the service has not", examples=[[]])]
    running: list[Running]


class ResolvedFile(ExperimentFile):
    """The file that was sent, with every default filled in."""

    name: Annotated[str, Field(examples=["digits"])]
    project: Annotated[str | None, Field(examples=["vision"])]
    objective: Objectives
    budget: Budget
    note: Annotated[str, Field(examples=[""])]
    tags: Annotated[list[str], Field(examples=[[]])]
    priority: Annotated[int, Field(examples=[0])]


class DryRun(Shown):
    experiment: ResolvedFile
    space_size: Annotated[Number | None, Field(description="how many different trials it has", examples=["Infinity"])]
    samples: Annotated[list[Parameters], Field(description="what random draws of it look like")]


class Experiments(Shown):
    items: list[Experiment]
    next: Next


class JournalLine(Shown):
    line: Count
    at: Moment
    kind: Annotated[str, Field(examples=["trial_ended"])]
    queues: Annotated[list[str], Field(description="who is told of it", examples=[["tuner"]])]
    payload: Annotated[dict[str, Any], Field(examples=[{"number": 12}])]


class Journal(Shown):
    items: list[JournalLine]
    next: Next


class SearchSpaceRevision(Shown):
    revision: Annotated[int, Field(examples=[1])]
    line: Annotated[int, Field(description="the journal line from which it holds", examples=[0])]
    at: Moment
    search_space: SearchSpace


class SearchSpaceRevisions(Shown):
    items: list[SearchSpaceRevision]
    next: Next


class Imported(Shown):
    imported: Count
    skipped: Annotated[int, Field(description="results that lie outside the space", examples=[0])]
