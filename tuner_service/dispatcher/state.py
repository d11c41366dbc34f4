"""The dispatcher's memory: what of the rows it needs at hand, and nothing that the rows could not give back.

Trials that have ended and whose end was told are let go; their counts stay in the experiment's row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tuner_service.dispatcher.items import (
    MetricsReported,
    Queue,
    QueueItem,
    SearchSpaceUpdated,
    SuggestionRequested,
)
from tuner_service.dispatcher.ledger import Held, Ledger
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentReason, ExperimentStatus
from tuner_service.domain.node_kinds import NODES_LIMIT, NodeShape
from tuner_service.domain.resources import Node, QuotaGroup
from tuner_service.domain.steps import Steps
from tuner_service.domain.trial import Attempt, Checkpoint, Trial, TrialStatus

# Pauses after which a worker would only fail again: the next one is started by a resume.
ALGORITHM_TROUBLES = frozenset(
    {ExperimentReason.ALGORITHM_FAILED, ExperimentReason.ALGORITHM_HANGS, ExperimentReason.WORKER_DIES}
)


class WorkerPhase(StrEnum):
    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    HALTED = "halted"  # an algorithm raised; replaced when the experiment is resumed


@dataclass(slots=True, kw_only=True)
class WorkerState:
    generation: int = 0
    phase: WorkerPhase = WorkerPhase.ABSENT
    deaths: int = 0  # in a row, none of them after a steady life: they set the pause before the next start
    unready_deaths: int = 0  # in a row, before it was ready
    idle_deaths: int = 0  # in a row, without an answer or a steady life between them
    respawn_at: float | None = None
    ready_at: float = 0.0  # of one that starts: when it was started, or came on last
    heard_at: float = 0.0
    pinged_at: float | None = None
    idle_since: float | None = None  # of a paused experiment, with nothing to answer or judge
    given_up: bool = False  # until a person resumes
    asks_ahead: bool = False  # as it said when it was ready

    @property
    def takes_items(self) -> bool:
        return self.phase in {WorkerPhase.STARTING, WorkerPhase.READY}

    @property
    def is_to_answer(self) -> bool:
        """Whether there is one that takes items, or one will be started by itself."""
        return self.takes_items or self.respawn_at is not None


@dataclass(slots=True, kw_only=True)
class QueueState:
    """``pending`` holds the items past the cursor, in line order."""

    pending: deque[QueueItem] = field(default_factory=deque)
    head_since: float | None = None  # since when the first of them waits for a worker that is up
    retries: int = 0  # of the first of them
    deaths: int = 0  # of workers that had the first of them to answer
    warned: bool = False  # that it is long; again once it was short in between
    reports: int = 0  # in the lines of ``pending``, as ``report_count`` counts them


@dataclass(slots=True, kw_only=True)
class ExperimentState:
    experiment: Experiment
    trials: dict[int, Trial] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)  # the live one of a trial
    ordered_at: dict[int, float] = field(default_factory=dict)  # when its agent was last told to start or stop it
    held_until: dict[int, float] = field(default_factory=dict)  # waiting trials that pause before their next attempt
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=dict)  # oldest first
    seen_steps: dict[int, Steps] = field(default_factory=dict)
    rejected_records: dict[int, int] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)  # whose live attempt has ended, and some of its reports are to come
    queues: dict[Queue, QueueState] = field(default_factory=lambda: {q: QueueState() for q in Queue})
    worker: WorkerState = field(default_factory=WorkerState)
    warned_of_no_checkpoint: bool = False  # that trials begin anew when they are promoted
    changed_space: dict[str, Any] | None = (
        None  # the newest search space, where scripts may add to it, or a person changed it since the start
    )
    told_space: dict[str, Any] | None = None  # likewise, of those that the tuner has taken
    # What of ``trials`` is asked for after every command, and follows from them: see ``note``.
    waiting: set[int] = field(default_factory=set)  # for an attempt
    wanting: set[int] = field(default_factory=set)  # parameters that nobody has chosen yet

    def __post_init__(self) -> None:
        for trial in self.trials.values():
            self.note(trial)

    def note(self, trial: Trial) -> None:
        """A row of ``trials`` is another one now."""
        self.trials[trial.number] = trial
        (self.waiting.add if trial.status is TrialStatus.WAITING else self.waiting.discard)(trial.number)
        (self.wanting.add if trial.waits_for_parameters else self.wanting.discard)(trial.number)

    def let_go(self, number: int) -> None:
        """Of a trial that has ended and was told."""
        self.trials.pop(number, None)
        self.waiting.discard(number)
        self.wanting.discard(number)
        self.seen_steps.pop(number, None)
        self.checkpoints.pop(number, None)

    @property
    def id(self) -> ExperimentId:
        return self.experiment.id

    @property
    def growing_space(self) -> dict[str, Any]:
        """The newest search space, of an experiment whose scripts may add to it."""
        return self.experiment.spec.search_space if self.changed_space is None else self.changed_space

    def forget_untold_space(self) -> None:
        """What was to be told to the tuner and never will be is the newest search space no more."""
        waiting = [item for item in self.queues[Queue.TUNER].pending if isinstance(item, SearchSpaceUpdated)]
        self.changed_space = waiting[-1].search_space if waiting else self.told_space

    @property
    def requests(self) -> list[SuggestionRequested]:
        """Asked for and not answered, further parameters of running trials included; in line order."""
        return [item for item in self.queues[Queue.TUNER].pending if isinstance(item, SuggestionRequested)]

    @property
    def judging_queue(self) -> Queue | None:
        """The queue that takes reports; None where nobody judges."""
        spec = self.experiment.spec
        if spec.advisor is not None:
            return Queue.TUNER
        return None if spec.assessor is None else Queue.ASSESSOR

    @property
    def openings(self) -> list[SuggestionRequested]:
        """The requests for a trial to run next: a new one, or for an advisor perhaps one that rests."""
        return [item for item in self.requests if item.index == 0]

    @property
    def requested_numbers(self) -> list[int]:
        """Of the new trials that are asked for."""
        return [item.number for item in self.openings if item.number]

    @property
    def untold(self) -> list[Trial]:
        """The trials whose end, or whose rest, was not told yet; deterministic: in the order of telling."""
        return sorted((t for t in self.trials.values() if not t.rests), key=lambda t: (t.rungs.segment_line, t.number))

    @property
    def has_untold(self) -> bool:
        return any(not trial.rests for trial in self.trials.values())

    def count(self, *statuses: TrialStatus) -> int:
        """How many trials have one of these statuses, none of them final."""
        counts = self.experiment.counts
        return sum(counts.get(status.value, 0) for status in statuses)

    @property
    def tells_more(self) -> bool:
        """Whether the tuner is about to learn something that it was not asked about yet."""
        known = SuggestionRequested | MetricsReported  # reports change no suggestion before their trial rests or ends
        return any(not isinstance(item, known) for item in self.queues[Queue.TUNER].pending)

    def held(self, attempt: Attempt) -> Held:
        """What a live attempt holds, and for whom."""
        return Held(experiment_id=self.id, group=self.experiment.spec.quota_group, holdings=attempt.holdings)

    def is_choosing_for(self, number: int) -> bool:
        """Whether further parameters of this trial are asked for."""
        return any(item.number == number and item.index > 0 for item in self.requests)

    def trials_with(self, *statuses: TrialStatus) -> list[Trial]:
        """Those in memory, by number."""
        return sorted((t for t in self.trials.values() if t.status in statuses), key=lambda t: t.number)

    @property
    def has_work(self) -> bool:
        """Whether lines wait for an answer, or may still come from trials that run."""
        return bool(self.attempts) or any(waiting.pending for waiting in self.queues.values())

    @property
    def wants_worker(self) -> bool:
        """Whether an algorithm worker should live: while something may still be asked or judged."""
        match self.experiment.status:
            case ExperimentStatus.RUNNING | ExperimentStatus.STOPPING:
                return True
            case ExperimentStatus.PAUSED:
                helpless = self.worker.given_up or self.experiment.reason in ALGORITHM_TROUBLES
                return self.has_work and not helpless
            case _:
                return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """An experiment that nothing is decided about, as its rows are damaged. ``holding``: its live attempts, which keep
    what they hold. ``group``: the quota group that it draws from when it goes on."""

    why: str
    group: str = ""
    holding: Sequence[Held] = ()


@dataclass(slots=True, kw_only=True)
class DispatcherState:
    """``agents``: the nodes connected now. ``incarnation`` is new for each life of the service: it makes nonces new."""

    lineage: str
    incarnation: str
    first_generation: int = 0
    launches: int = 0
    experiments: dict[ExperimentId, ExperimentState] = field(default_factory=dict)
    set_aside: dict[ExperimentId, SetAside] = field(default_factory=dict)  # left as they are, their trials too
    agents: dict[str, Node] = field(default_factory=dict)
    away: dict[str, float] = field(default_factory=dict)  # agents that may hold attempts: since when, not connected
    service_lost_s: float | None = None  # after so long, what they hold is given up
    retired: dict[str, None] = field(default_factory=dict)  # agents that get no more trials; oldest first
    promised: NodeShape | None = None  # what a node would have that a cluster can be asked for
    promised_most: int = NODES_LIMIT  # so many of them at once
    groups: dict[str, QuotaGroup] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)  # what the live attempts hold
    placement_is_due: bool = True  # something has changed since trials were placed last
    short_since: float | None = None  # when trials were placed last, and some found no room that others may leave
    # Stored, and not yet named by a row: for how many records. Those that were received last come last.
    fresh_blobs: dict[str, int] = field(default_factory=dict)
    at_work: ExperimentId = ""  # with which experiment a step is busy, where its command does not say it

    def let_node_go(self, agent_id: str) -> None:
        """Nothing is started there any more; what attempts hold there they hold."""
        self.agents.pop(agent_id, None)
        self.ledger.forget_node(agent_id)

    def next_nonce(self) -> str:
        self.launches += 1
        return f"{self.incarnation}-{self.launches}"
