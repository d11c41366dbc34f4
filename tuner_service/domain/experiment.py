"""An experiment: what was asked for, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trials.wire.launch import LaunchSettings, assets_of
from tuner_service.domain.archives import Archive
from tuner_service.domain.node_kinds import ExecutorRequest
from tuner_service.domain.resources import DEFAULT_GROUP, GpuRequest

ExperimentId = str
DEFAULT_PROJECT = "default"


class ExperimentStatus(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in {ExperimentStatus.STOPPED, ExperimentStatus.COMPLETED, ExperimentStatus.FAILED}


class ExperimentReason(StrEnum):
    """Why an experiment has its status. The closed list; the sentence beside it says the particulars."""

    NONE = "none"
    REQUESTED = "requested"  # a person or program asked for it
    BUDGET_REACHED = "budget_reached"
    DURATION_REACHED = "duration_reached"
    SPACE_EXHAUSTED = "space_exhausted"  # the tuner has nothing left to propose
    ADVISOR_DONE = "advisor_done"  # the advisor has run all that it planned
    ALGORITHM_FAILED = "algorithm_failed"  # the tuner or the assessor raised
    ALGORITHM_HANGS = "algorithm_hangs"  # it did not answer within its limit, several times
    WORKER_DIES = "worker_dies"  # the algorithm worker died again and again
    NOT_SUPPORTED = "not_supported"  # the algorithm cannot search this space
    ASSETS_MISSING = "assets_missing"  # the store has not, or has damaged, what trials are to be given
    NODES_NOT_READY = "nodes_not_ready"  # trials of several nodes could not begin, again and again
    ROWS_DAMAGED = "rows_damaged"  # of the database: it is left as it is until they can be read
    SERVICE_FAULT = "service_fault"  # what it did made the service fail: it is left as it is until the next start
    TOO_MANY_FAILURES = "too_many_failures"
    TRIALS_ADDED = "trials_added"  # it had ended, and runs what people added to it since, and nothing else
    IDENTICAL_FAILURES = "identical_failures"  # the first trials all failed with the same error


ASIDE = frozenset({ExperimentReason.ROWS_DAMAGED, ExperimentReason.SERVICE_FAULT})  # those of what was set aside


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class FinalFrom(StrEnum):
    """Where a trial's final metric comes from."""

    REPORTED = "reported"
    LAST = "last"
    BEST = "best"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """``further`` are the others of an experiment with several; what looks at one value looks at the first one's.

    ``is_optional``: a trial that reports no final value of it has succeeded all the same, where nothing is searched.
    """

    metric: str
    goal: Goal = Goal.MINIMIZE
    further: tuple[Objective, ...] = ()
    is_optional: bool = False

    @property
    def every(self) -> tuple[Objective, ...]:
        """This one and the further ones: what the values of an outcome stand for, in their order."""
        return (self, *self.further)

    def better(self, value: float, than: float | None) -> bool:
        """Whether ``value`` beats ``than``; NaN beats nothing, and everything but NaN beats None."""
        if value != value:  # noqa: PLR0124  # NaN is the one value that differs from itself
            return False
        if than is None or than != than:  # noqa: PLR0124  # NaN is the one value that differs from itself
            return True
        return value > than if self.goal is Goal.MAXIMIZE else value < than


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSpec:
    """A registered algorithm by ``name``, or a user's class as ``class_name`` ("package.module:Class")."""

    name: str | None = None
    class_name: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    reason: str = ""  # why ``auto`` chose it; empty where a person did

    @property
    def label(self) -> str:
        return self.name or self.class_name or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """``trials`` counts those that succeeded or were stopped early; failures have a bound of their own."""

    trials: int | None = None
    parallel: int = 1
    duration_s: float | None = None
    failures: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOrigin:
    """Where the code comes from, as git knows it on the machine that sent it."""

    commit: str | None = None  # None: nothing was committed there yet
    branch: str | None = None  # None: of no branch, or of a ref
    ref: str | None = None  # what was asked for; None: a folder as it was
    is_dirty: bool = False  # files of it were not as committed
    changes_digest: str | None = None  # of the diff, a blob


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTemplate(LaunchSettings):
    """How every trial of the experiment is run: what its launch is given, and what the service keeps to."""

    final: FinalFrom = FinalFrom.REPORTED
    keep_last: int = 2
    keep_best: int = 1
    heartbeat_s: float | None = None
    max_attempts: int = 1
    lease_s: float | None = None  # trials are evaluated by whoever asks; given back when so long nothing is told
    cpus: float = 0.0  # 0: not limited by the node's cores, only by the experiment's parallelism
    gpus: float = 0.0  # whole devices, or a fraction of one
    gpu_request: GpuRequest = GpuRequest.COUNT
    gpu_memory_bytes: int = 0  # that must be free on each of its devices
    labels: dict[str, str] = field(default_factory=dict)  # that its node must have
    code_origin: CodeOrigin | None = None

    @property
    def assets(self) -> frozenset[str]:
        """The digests of the assets that its trials are given, their code among them."""
        return assets_of(self)

    @property
    def blobs(self) -> tuple[str, ...]:
        """The digests of what of it the database holds: the code, and how that differs from what was committed."""
        changes = None if self.code_origin is None else self.code_origin.changes_digest
        return tuple(digest for digest in (self.code_digest, changes) if digest is not None)

    @property
    def is_asked_for(self) -> bool:
        """Whether evaluators ask for the trials, so that the service launches nothing."""
        return self.lease_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """What was asked for, resolved: every default filled in. Stored as it is, never reinterpreted."""

    name: str
    seed: int
    objective: Objective
    search_space: dict[str, Any]
    tuner: AlgorithmSpec
    budget: Budget
    trial: TrialTemplate
    assessor: AlgorithmSpec | None = None
    advisor: AlgorithmSpec | None = None  # takes the place of both; then ``tuner`` is not used
    deterministic: bool = False
    algorithm_timeout_s: float = 60.0  # one answer of the tuner or the assessor
    workers: int = 1  # suggestions asked for at a time
    warm_start: tuple[ExperimentId, ...] = ()  # experiments whose results the algorithms began with
    quota_group: str = DEFAULT_GROUP
    preemptible: bool = False  # its trials may have to leave for others of a higher priority, and go on later
    executor: ExecutorRequest = field(default_factory=ExecutorRequest)
    project: str = DEFAULT_PROJECT  # a named group of experiments, which is there as long as one names it
    on_end: tuple[str, ...] = ()  # names of commands of the service's home, by which people are told
    on_pause: tuple[str, ...] = ()
    on_failures: tuple[str, ...] = ()

    @property
    def is_search(self) -> bool:
        """Whether parameters are chosen at all; else it is one training, with everything else the same."""
        return bool(self.search_space) or self.trial.define_by_run

    @property
    def algorithm_code_digest(self) -> str | None:
        """The code that the algorithm worker needs: only where one of the algorithms is a class of a user."""
        classes = [a.class_name for a in self.algorithms]
        return self.trial.code_digest if any(classes) else None

    @property
    def algorithms(self) -> tuple[AlgorithmSpec, ...]:
        """Those that are asked: the advisor alone, or the tuner and the assessor if there is one."""
        if self.advisor is not None:
            return (self.advisor,)
        return (self.tuner,) if self.assessor is None else (self.tuner, self.assessor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One row of the experiments table. ``counts`` maps a trial status to how many trials have it."""

    id: ExperimentId
    spec: ExperimentSpec
    status: ExperimentStatus
    reason: ExperimentReason = ExperimentReason.NONE
    message: str = ""
    detail: str = ""  # a traceback, where there is one
    stop_to: ExperimentStatus | None = None  # where "stopping" leads; running: where it goes back to, see below
    created_at: float = 0.0  # seconds since the epoch, like every *_at
    started_at: float | None = None
    ended_at: float | None = None
    running_s: float = 0.0  # time spent running, downtime and pauses left out, up to ``running_since``
    running_since: float | None = None
    next_line: int = 1
    next_number: int = 1
    tuner_cursor: int = 0  # journal line up to which the tuner has answered
    assessor_cursor: int = 0
    failures: int = 0  # told failed trials since it last started to run
    spared: int = 0  # trials that use none of the budget: added by people, or told to have failed or been canceled
    first_error: str = ""  # fingerprint of the first trial told since it last started to run
    same_errors: int = 0  # how many trials told since then failed with it; 0 once one did not
    exhausted: bool = False
    tuner_waits: bool = False  # it had no suggestion; asked again when it has learned more
    best_number: int | None = None
    best_value: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    free_numbers: tuple[int, ...] = ()  # below next_number: asked for, answered with nothing, given out again first
    note: str = ""
    tags: tuple[str, ...] = ()
    priority: int = 0  # of experiments that wait for the same devices or cores, the higher goes first
    peak_gpu_bytes: int | None = None  # the most GPU memory that one of its trials was seen to use; None: unknown
    archive: Archive | None = None  # None: the database has all of its metrics

    @property
    def runs_added_only(self) -> bool:
        """Whether it had ended, and runs only the trials that people added to it since; then it ends again."""
        return self.stop_to is not None and self.status in {ExperimentStatus.RUNNING, ExperimentStatus.PAUSED}

    @property
    def has_ended_and_is_aside(self) -> bool:
        """Whether it has ended, and was set aside since: nothing but its removal can be asked of it."""
        return self.status.has_ended and self.reason in ASIDE
