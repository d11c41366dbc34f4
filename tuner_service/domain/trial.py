"""A trial: one evaluation of one set of parameters; an attempt: one process life of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trials.protocol import AttemptKey, ExitRecord, ProcessRecord

Parameters = dict[str, Any]

# Where parameters come from.
SOURCE_TUNER = "tuner"
SOURCE_CUSTOM = "custom"  # a person chose them
SOURCE_RETRY = "retry"  # a person wants a trial that failed once more
SOURCE_IMPORTED = "imported"  # a result from elsewhere


class TrialStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EARLY_STOPPED = "early_stopped"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATUSES

    @property
    def eats_budget(self) -> bool:
        return self not in {TrialStatus.FAILED, TrialStatus.CANCELED}


FINAL_STATUSES = frozenset({TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED, TrialStatus.CANCELED})


class TrialReason(StrEnum):
    """Why a trial has its status. The closed list; the sentence beside it says the particulars."""

    NONE = "none"
    SUGGESTED = "suggested"  # the tuner proposed it
    ADDED = "added"  # a person added it
    LAUNCHED = "launched"
    FINAL_METRIC = "final_metric"  # it reported what was asked for
    STOPPED_BY_ASSESSOR = "stopped_by_assessor"
    STOPPED_BY_USER = "stopped_by_user"
    EXPERIMENT_STOPPED = "experiment_stopped"  # goes on when the experiment does
    RESUMED = "resumed"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"  # one it brought on itself
    OUT_OF_MEMORY = "out_of_memory"
    NO_FINAL_METRIC = "no_final_metric"
    LAUNCH_FAILED = "launch_failed"
    HEARTBEAT_MISSED = "heartbeat_missed"
    CRASH_LOOP = "crash_loop"  # died again and again without progress
    PREEMPTED = "preempted"  # a signal from outside, a stop without the service; goes on in a new attempt
    ATTEMPT_LOST = "attempt_lost"  # its supervisor, its host or its files are gone; goes on in a new attempt


class AttemptStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        return self in {AttemptStatus.EXITED, AttemptStatus.LOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEnd:
    """Deterministic experiments: how the trial ends once every report of it is assessed."""

    status: TrialStatus
    reason: TrialReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One row of the trials table."""

    experiment_id: str
    number: int
    status: TrialStatus
    parameters: Parameters
    reason: TrialReason = TrialReason.NONE
    message: str = ""
    source: str = SOURCE_TUNER
    retry_of: int | None = None
    decided_line: int = 0  # the journal line that asked for it
    told_line: int | None = None  # the journal line that told its end; set exactly once
    final: dict[str, float] = field(default_factory=dict)  # final metrics as reported
    value: float | None = None  # of the objective, once it ended; for an early-stopped trial the last judged one
    last_step: int | None = None  # of the last report of the objective that algorithms saw
    last_value: float | None = None
    last_metrics: dict[str, float] = field(default_factory=dict)
    best_value: float | None = None  # over its intermediate metrics
    further_parameters: tuple[Parameters, ...] = ()  # of index 1, 2, …: what the script asked for beside ``parameters``
    further_lines: tuple[int, ...] = ()  # the journal lines that asked for them
    wanted_index: int = 0  # the highest index its script has asked for
    reported_index: int = 0  # of the parameters that its newest metrics were reported with
    further_ended: bool = False  # there are no further ones for it
    reports_line: int = 0  # the last journal line that holds reports for the assessor
    stopped_at_line: int | None = None  # the reports line in which the assessor stopped it
    stopped_at_sequence: int | None = None  # and the spool sequence of that report
    pending_end: PendingEnd | None = None
    fingerprint: str = ""  # of its failure; equal for equal errors
    attempts: int = 0
    charged: int = 0  # attempts that count against max_attempts
    deaths_without_progress: int = 0
    metric_names: tuple[str, ...] = ()
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    running_s: float = 0.0

    @property
    def is_added(self) -> bool:
        """Whether a person asked for it, so that it uses none of the budget."""
        return self.source != SOURCE_TUNER

    @property
    def waits_for_parameters(self) -> bool:
        """Whether its script has asked for parameters that nobody has chosen yet."""
        return self.wanted_index > len(self.further_parameters) and not self.further_ended

    def parameters_of(self, index: int) -> Parameters:
        return self.further_parameters[index - 1] if index else self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One row of the attempts table. ``nonce`` names this launch in the whole world and is spent once."""

    key: AttemptKey
    nonce: str
    lineage: str
    agent_id: str
    status: AttemptStatus
    process: ProcessRecord | None = None
    acknowledged: int = 0  # the last spool sequence on the service's disk
    exit: ExitRecord | None = None
    message: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    last_heard_at: float = 0.0
    restored_step: int | None = None  # the step of the newest checkpoint it was given


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One row of the checkpoints table. ``sequence`` is its record's place in the attempt's spool."""

    experiment_id: str
    number: int
    attempt: int
    nonce: str
    sequence: int
    step: int
    name: str
    digest: str
    size: int
    inline: bool  # bytes in the blobs table; else in the checkpoint folder
    value: float | None = None  # the objective when it was taken, for keep: best
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One intermediate value of the objective, as algorithms see it."""

    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """How a trial ended, as algorithms see it. ``value`` is None where it has none (a failure, say)."""

    number: int
    status: TrialStatus
    parameters: Parameters
    value: float | None
    step: int | None = None
    source: str = SOURCE_TUNER
