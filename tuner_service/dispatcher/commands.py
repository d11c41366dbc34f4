"""What the dispatcher is told: facts, in the past participle. ``at`` is seconds since the epoch, from clock.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trials.wire.attempt import AttemptKey
from trials.wire.messages import ObservedAttempt
from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    CooperationRecord,
    ExitRecord,
    MetricRecord,
    NoticeRecord,
    ParametersMissingRecord,
    ParametersWantedRecord,
    ProcessRecord,
    StopToldRecord,
)
from tuner_service.dispatcher.items import AlgorithmFault, Answer, ImportedLine, MetricsReported, Queue
from tuner_service.domain.archives import ArchivePhase
from tuner_service.domain.assets import AssetId
from tuner_service.domain.experiment import Budget, CodeOrigin, ExperimentId, ExperimentSpec
from tuner_service.domain.resources import Device, QuotaGroup
from tuner_service.domain.trial import Checkpoint, Parameters, TrialOutput


# ── from people; ``by``: the name of who asked for it, where it is known ─────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """Stored in the transaction that carries the command out, so a repeated request finds its answer."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentCreated:
    at: float
    experiment_id: ExperimentId
    spec: ExperimentSpec
    known: tuple[ImportedLine, ...] = ()  # results of earlier experiments, which its algorithms begin with
    code: bytes | None = None  # gzip tar whose SHA-256 is spec.trial.code_digest
    idempotency: IdempotencyKey | None = None
    note: str = ""
    tags: tuple[str, ...] = ()
    priority: int = 0
    code_changes: bytes | None = None  # whose SHA-256 is spec.trial.code_origin.changes_digest
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPaused:
    at: float
    experiment_id: ExperimentId
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRaise:
    """New totals; None leaves a field as it is. ``unbounded`` names fields that have no bound from now on."""

    trials: int | None = None
    duration_s: float | None = None
    parallel: int | None = None
    failures: int | None = None
    unbounded: frozenset[Literal["trials", "duration_s"]] = frozenset()

    def applied_to(self, budget: Budget) -> Budget:
        return Budget(
            trials=None if "trials" in self.unbounded else (self.trials or budget.trials),
            parallel=budget.parallel if self.parallel is None else self.parallel,
            duration_s=None if "duration_s" in self.unbounded else (self.duration_s or budget.duration_s),
            failures=budget.failures if self.failures is None else self.failures,
        )

    @property
    def changes_duration(self) -> bool:
        return self.duration_s is not None or "duration_s" in self.unbounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentResumed:
    """``code`` is a new code revision for the trials to come, with its digest, and where it comes from.

    ``skip``: the queue and the line at which its algorithm raised, which is left out from now on.
    """

    at: float
    experiment_id: ExperimentId
    budget: BudgetRaise = field(default_factory=BudgetRaise)
    code: bytes | None = None
    code_digest: str | None = None
    code_origin: CodeOrigin | None = None
    code_changes: bytes | None = None
    skip: tuple[Queue, int] | None = None
    algorithm_timeout_s: float | None = None  # another one from now on
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStopped:
    at: float
    experiment_id: ExperimentId
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentDeleted:
    at: float
    experiment_id: ExperimentId
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMade:
    """The file, which is an asset of the store, verified."""

    asset: AssetId
    rows: int
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMoved:
    """Its metrics are to be archived, put back or removed, or a step of that is done.

    ``phase`` None: the database has all rows again. ``made``: the file, once there is one.
    """

    at: float
    experiment_id: ExperimentId
    phase: ArchivePhase | None
    made: ArchiveMade | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsDropped:
    """Some of those of an experiment that is being removed, whose rows go before it."""

    at: float
    experiment_id: ExperimentId
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStopped:
    at: float
    experiment_id: ExperimentId
    number: int
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChanged:
    """Changed live; None leaves a field as it is. Of an ended experiment the budget is changed by resuming it."""

    at: float
    experiment_id: ExperimentId
    budget: BudgetRaise = field(default_factory=BudgetRaise)
    name: str | None = None
    note: str | None = None
    tags: tuple[str, ...] | None = None
    priority: int | None = None
    preemptible: bool | None = None
    project: str | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAdded:
    """A person chose these parameters. ``retry_of`` names the trial that failed with them."""

    at: float
    experiment_id: ExperimentId
    parameters: Parameters
    retry_of: int | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesImported:
    """Results from elsewhere, for the tuner; their number is 0."""

    at: float
    experiment_id: ExperimentId
    lines: tuple[ImportedLine, ...]  # as ``importing.lines_of`` makes them
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpaceChanged:
    """A valid space, in the form of an experiment file; holds for every suggestion asked for from now on."""

    at: float
    experiment_id: ExperimentId
    search_space: dict[str, Any]
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAsked:
    """An evaluator wants a trial; ``token`` will name the attempt, and must be new. Asked again with it: no other."""

    at: float
    experiment_id: ExperimentId
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTold:
    """What an evaluator says of the trial that it holds by ``token``.

    With a ``step``: intermediate ``values``. Else with ``ends``: the final ones, or the ``error`` that it failed with.
    Else only that it goes on.
    """

    at: float
    experiment_id: ExperimentId
    token: str
    values: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    ends: bool = True
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroupSet:
    """Made, or changed unless it ``must_be_new``; what runs goes on."""

    at: float
    group: QuotaGroup
    must_be_new: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroupDeleted:
    at: float
    name: str
    by: str = ""


# ── from agents ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConnected:
    at: float
    agent_id: str
    cpus: int
    memory_bytes: int
    attempts: tuple[ObservedAttempt, ...]
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""  # why nothing can be started there now
    drained: bool = False  # nor is it to be, and what runs there goes on elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """``trouble``: why nothing can be started on the agent's node now; empty where all is well."""

    at: float
    agent_id: str
    trouble: str
    drained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRemoved:
    """Its agent is not waited for any more. ``force``: though trials run there, as far as anybody knows."""

    at: float
    agent_id: str
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesChanged:
    """All devices of the node as they are now. ``peaks``: by nonce, the most GPU memory a live attempt has used."""

    at: float
    agent_id: str
    devices: tuple[Device, ...]
    peaks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDisconnected:
    at: float
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRetired:
    """Its node is to be given back: nothing more is started there. ``only_idle``: refused while trials run there."""

    at: float
    agent_id: str
    only_idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLost:
    """Whoever provided its node says that it is gone, with everything that ran there."""

    at: float
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    at: float
    agent_id: str
    key: AttemptKey
    nonce: str
    process: ProcessRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrepared:
    """A part of an attempt of several nodes could begin."""

    at: float
    agent_id: str
    key: AttemptKey
    nonce: str
    address: str
    host: str
    port: int
    world_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A spool line that could not be understood; it keeps its sequence."""

    error: str


Record = (
    MetricRecord | CheckpointRecord | CheckpointDamagedRecord | CooperationRecord | StopToldRecord
    | ParametersWantedRecord | ParametersMissingRecord | NoticeRecord | RejectedRecord
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsReceived:
    """The records of spool lines ``first_sequence`` and on.

    ``locations``: by digest, where in the checkpoint store the bytes of large checkpoints are.
    """

    at: float
    agent_id: str
    key: AttemptKey
    nonce: str
    first_sequence: int
    records: tuple[Record, ...]
    locations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCollected:
    """What an attempt left is an asset now, which is in the store."""

    at: float
    agent_id: str
    key: AttemptKey
    nonce: str
    output: TrialOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptExited:
    at: float
    agent_id: str
    key: AttemptKey
    nonce: str
    exit: ExitRecord
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobReceived:
    """Bytes whose SHA-256 was verified to be ``digest``. ``agent_id``: who sent them, where an agent did."""

    at: float
    digest: str
    data: bytes
    agent_id: str | None = None


# ── from algorithm workers (dropped unless ``generation`` is the current one) ───────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """``asks_ahead``: no suggestion depends on an outcome; some may be asked for before there is room to run them."""

    at: float
    experiment_id: ExperimentId
    generation: int
    asks_ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPonged:
    at: float
    experiment_id: ExperimentId
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAnswered:
    """Answers in line order; ``read``: lines at which something is advised, and whose reports were not in memory."""

    at: float
    experiment_id: ExperimentId
    generation: int
    queue: Queue
    answers: tuple[Answer, ...]
    read: tuple[MetricsReported, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmFaulted:
    """The algorithm raised at ``line`` (0: while it was built or folded)."""

    at: float
    experiment_id: ExperimentId
    generation: int
    queue: Queue
    line: int
    fault: AlgorithmFault
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgressed:
    """It has come on in its queue: in its history, or in a line of many reports that it has not answered yet."""

    at: float
    experiment_id: ExperimentId
    generation: int
    queue: Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """``state`` is JSON text that covers every line of the queue up to ``line``."""

    at: float
    experiment_id: ExperimentId
    generation: int
    queue: Queue
    line: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied:
    at: float
    experiment_id: ExperimentId
    generation: int
    detail: str
    damage: str = ""  # the row of its history that cannot be read: another worker could not read it either


# ── from the clock ──────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    at: float


Change = (
    ExperimentCreated | ExperimentPaused | ExperimentResumed | ExperimentStopped | ExperimentDeleted | TrialStopped
    | ExperimentChanged | TrialAdded | OutcomesImported | SearchSpaceChanged | QuotaGroupSet | QuotaGroupDeleted
)  # fmt: skip
LiveChange = ExperimentChanged | TrialAdded | OutcomesImported | SearchSpaceChanged
Request = (
    ExperimentCreated | ExperimentPaused | ExperimentResumed | ExperimentStopped | ExperimentDeleted | TrialStopped
    | ArchiveMoved | CheckpointsDropped
    | TrialAsked | TrialTold | LiveChange | QuotaGroupSet | QuotaGroupDeleted
)  # fmt: skip
Command = (
    Request
    | AgentConnected | AgentDisconnected | AgentRetired | AgentLost | DevicesChanged | NodeChanged | NodeRemoved
    | AttemptStarted | PartPrepared | ReportsReceived | AttemptExited | OutputCollected | BlobReceived
    | WorkerReady | WorkerPonged | WorkerProgressed | QueueAnswered | AlgorithmFaulted | SnapshotTaken | WorkerDied
    | TimePassed
)  # fmt: skip
WorkerEvent = (
    WorkerReady | WorkerPonged | WorkerProgressed | QueueAnswered | AlgorithmFaulted | SnapshotTaken | WorkerDied
)  # fmt: skip
