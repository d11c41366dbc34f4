"""A trial: one evaluation of one set of parameters; an attempt: one process life of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trials.wire.attempt import AttemptKey
from trials.wire.records import ExitCause, ExitRecord, ProcessRecord
from tuner_service.domain.resources import Holding
from tuner_service.domain.rungs import NO_RUNGS, Rungs

Parameters = dict[str, Any]

# Where parameters come from.
SOURCE_TUNER = "tuner"
SOURCE_CUSTOM = "custom"  # a person chose them
SOURCE_RETRY = "retry"  # a person wants a trial that failed once more
SOURCE_IMPORTED = "imported"  # a result from elsewhere


# Instead of an agent's id, of an attempt that was given to an evaluator who asked for it.
EVALUATOR = ""


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
    ASKED = "asked"  # an evaluator has asked for it
    FINAL_METRIC = "final_metric"  # it reported what was asked for
    STOPPED_BY_ASSESSOR = "stopped_by_assessor"
    STOPPED_BY_USER = "stopped_by_user"
    EXPERIMENT_STOPPED = "experiment_stopped"  # goes on when the experiment does
    RESUMED = "resumed"
    RUNG_REACHED = "rung_reached"  # it rests where the advisor wanted it to; goes on when it is promoted
    PROMOTED = "promoted"  # the advisor lets it go on
    FORKED = "forked"  # the advisor lets it go on from another trial's checkpoint
    NOT_PROMOTED = "not_promoted"  # the advisor gave it up where it rested, or the experiment ended before
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"  # one it brought on itself
    OUT_OF_MEMORY = "out_of_memory"
    NO_FINAL_METRIC = "no_final_metric"
    LAUNCH_FAILED = "launch_failed"
    FILES_DAMAGED = "files_damaged"  # the files of its attempt were removed or damaged while it ran
    HEARTBEAT_MISSED = "heartbeat_missed"
    TOLD_FAILED = "told_failed"  # its evaluator says that it failed
    MAX_DURATION = "max_duration"  # an attempt ran longer than it may
    CRASH_LOOP = "crash_loop"  # died again and again without progress
    PREEMPTED = "preempted"  # a signal from outside, a stop without the service; goes on in a new attempt
    DEVICE_LOST = "device_lost"  # a device it held cannot be used any more; goes on in a new attempt
    ASSETS_MISSING = "assets_missing"  # the store had not what it is given; goes on once the experiment is resumed
    DEVICE_UNAVAILABLE = "device_unavailable"  # a device was not free when it was to start; goes on in a new attempt
    NODES_NOT_READY = "nodes_not_ready"  # not all of its nodes could begin; goes on in a new attempt
    LEASE_EXPIRED = "lease_expired"  # its evaluator told nothing for too long; goes to another that asks
    ATTEMPT_LOST = "attempt_lost"  # its supervisor, its host or its files are gone; goes on in a new attempt


# A trial that failed so may have failed by its parameters; for the other reasons it is not to blame.
OWN_FAILURES = frozenset(
    {
        TrialReason.EXIT_CODE,
        TrialReason.SIGNAL,
        TrialReason.OUT_OF_MEMORY,
        TrialReason.NO_FINAL_METRIC,
        TrialReason.HEARTBEAT_MISSED,
        TrialReason.TOLD_FAILED,
        TrialReason.MAX_DURATION,
    }
)


class AttemptStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        return self in {AttemptStatus.EXITED, AttemptStatus.LOST}


class PartState(StrEnum):
    """Of one part of an attempt of several nodes. None begins before all are ready."""

    PREPARING = "preparing"
    READY = "ready"  # once all are, each is ordered to begin
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What of an attempt of several nodes runs on one of them; its place among the parts is the node's number.

    Each has a nonce of its own, so that the processes of two parts on one machine are told apart.
    """

    agent_id: str
    nonce: str
    state: PartState = PartState.PREPARING
    process: ProcessRecord | None = None
    acknowledged: int = 0  # the last spool sequence on the service's disk; of the first part the attempt says it
    exit: ExitRecord | None = None
    ended_at: float | None = None  # when the service was told
    address: str = ""  # where its node is reached, once it is ready
    host: str = ""
    port: int = 0  # a free one of that node
    world_key: str = ""  # a secret of the attempt's processes, made up by the first node; shown to nobody

    @property
    def ended_well(self) -> bool:
        return self.exit is not None and self.exit.cause is ExitCause.EXITED and self.exit.code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEnd:
    """Deterministic experiments: how the trial ends, or that it rests, once every report of it is assessed."""

    status: TrialStatus
    reason: TrialReason
    message: str
    at: float | None = None  # when its attempt ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutput:
    """What a trial left in its output folder, as its newest attempt that left anything. ``asset`` "": nothing is kept.

    ``message``: what is missing and why, where it is not complete.
    """

    attempt: int
    asset: str
    size: int = 0
    files: int = 0
    is_complete: bool = True
    message: str = ""
    step: int | None = None  # of the checkpoint at which it was taken; None: at the end


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
    # Of the parameters that ``last_value`` was reported with; once it has ended, of those its value belongs to.
    reported_index: int = 0
    final_index: int | None = None  # likewise of its newest final metrics; None where it has none
    best_index: int | None = None  # and of ``best_value``
    further_ended: bool = False  # there are no further ones for it
    reports_line: int = 0  # the last journal line that holds reports for the assessor
    stopped_at_line: int | None = None  # the reports line in which the assessor stopped it
    stopped_at_sequence: int | None = None  # and the spool sequence of that report
    pending_end: PendingEnd | None = None
    rungs: Rungs = NO_RUNGS
    fingerprint: str = ""  # of its failure; equal for equal errors
    attempts: int = 0
    charged: int = 0  # attempts that count against max_attempts
    deaths_without_progress: int = 0
    metric_names: tuple[str, ...] = ()
    output: TrialOutput | None = None
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    running_s: float = 0.0  # of its attempts that have ended
    running_since: float | None = None  # when the one that has not was launched

    @property
    def is_added(self) -> bool:
        """Whether a person asked for it, so that it uses none of the budget."""
        return self.source != SOURCE_TUNER

    @property
    def failed_itself(self) -> bool:
        """Whether it failed by its own doing, so that algorithms may learn of its parameters."""
        return self.status is TrialStatus.FAILED and self.reason in OWN_FAILURES

    @property
    def waits_for_parameters(self) -> bool:
        """Whether its script has asked for parameters that nobody has chosen yet."""
        return self.wanted_index > len(self.further_parameters) and not self.further_ended

    @property
    def rests(self) -> bool:
        """Whether it is paused at a rung and its advisor knows."""
        return self.rungs.rested_line is not None

    def parameters_of(self, index: int) -> Parameters:
        return self.further_parameters[index - 1] if index else self.parameters

    @property
    def result_index(self) -> int:
        """Of the parameters that its value belongs to; while it has none, of the newest that its script was given."""
        if self.value is not None:
            return self.reported_index
        return min(self.wanted_index, len(self.further_parameters))

    @property
    def result_parameters(self) -> Parameters:
        """What stands beside its value, wherever that is shown or told."""
        return self.parameters_of(self.result_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One row of the attempts table. ``nonce`` names this launch in the whole world and is spent once.

    An attempt that an evaluator asked for has EVALUATOR as its ``agent_id``, and its nonce is the evaluator's token.
    One of several nodes has ``parts``, and the agent, the nonce and the process of the first one.
    """

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
    holdings: tuple[Holding, ...] = ()  # of devices, cores and memory; empty where it asked for none of them
    peak_gpu_bytes: int | None = None  # the most memory of one of its devices that it was seen to use
    # Final metrics reported after the script was told to stop: results of half the way. None: it was not told.
    half_way: dict[str, float] | None = None
    parts: tuple[Part, ...] = ()  # of several nodes; empty where it runs on one

    def is_held_by(self, agent_id: str, nonce: str | None = None) -> bool:
        """Whether the agent has it, or a part of it; with ``nonce``, by that one."""
        held = [(part.agent_id, part.nonce) for part in self.parts] or [(self.agent_id, self.nonce)]
        return any(agent_id == theirs and nonce in {None, known} for theirs, known in held)

    @property
    def agent_ids(self) -> frozenset[str]:
        """Of all that have it, or a part of it."""
        return frozenset(part.agent_id for part in self.parts) or frozenset({self.agent_id})

    @property
    def is_preparing(self) -> bool:
        """Whether not all of its parts are ready, so that none was ordered to begin."""
        return any(part.state is PartState.PREPARING for part in self.parts)

    @property
    def has_failed_part(self) -> bool:
        """Whether a part has ended otherwise than well, which ends the others."""
        return any(part.exit is not None and not part.ended_well for part in self.parts)


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
    inline: bool  # bytes in the blobs table; else at ``location``
    value: float | None = None  # the objective when it was taken, for keep: best
    at: float = 0.0
    agent_id: str = ""  # whose attempt's folder has the file
    location: str | None = None  # path or URL in the checkpoint store, of one that is not inline
    stall_s: float | None = None  # so long the script waited for the save
    write_s: float | None = None  # so long the background took
    damaged: bool = False  # an attempt found other bytes than its digest says: it is not used again


class DecisionKind(StrEnum):
    """How an advisor answered a request."""

    START = "start"  # a new trial
    PROMOTE = "promote"  # a trial that rests goes on
    FORK = "fork"  # a new trial goes on from the checkpoint another one rested with


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an advisor decided: which trial runs next, and how far.

    ``parameters`` are None for a promotion, whose trial has them. ``forked_from`` is set for a fork alone. ``dropped``
    are trials that rest and that nothing will come of: they end.
    """

    kind: DecisionKind
    number: int
    parameters: Parameters | None = None
    until_step: int | None = None
    forked_from: int | None = None
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One intermediate value of the objective, as algorithms see it."""

    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """How a trial ended, as algorithms see it. ``value`` is None where it has none (a failure, say).

    With several objectives ``value`` is the first one's, and ``further_values`` are the others', None where unknown.
    """

    number: int
    status: TrialStatus
    parameters: Parameters
    value: float | None
    step: int | None = None
    source: str = SOURCE_TUNER
    further_values: tuple[float | None, ...] = ()
    own_failure: bool = False  # it failed, by its own doing: its parameters may be why

    @property
    def values(self) -> tuple[float | None, ...]:
        """One for each objective, in their order."""
        return (self.value, *self.further_values)
