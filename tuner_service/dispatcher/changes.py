"""What one step writes: collected while commands are handled, saved in one transaction.

Rows that change several times in a step appear once, as they are at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.archives import Archive
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import (
    Attempt,
    Checkpoint,
    Decision,
    DecisionKind,
    Parameters,
    Trial,
    TrialReason,
    TrialStatus,
)

TOUCHED_LIMIT = 2_000  # trials of one experiment that are named one by one; where more changed, all are read anew


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """``payload`` is plain JSON (NaN and infinities allowed). ``queues`` says which queues it was routed to."""

    experiment_id: ExperimentId
    line: int
    at: float
    kind: str
    payload: dict[str, Any]
    queues: tuple[Queue, ...] = ()


class MetricRow(NamedTuple):
    """One report. Identity: (experiment, number, attempt, sequence). ``line`` is its journal line.

    ``first`` says that algorithms see its value of the objective (and then ``objective`` holds it).
    A tuple, because these come in thousands: it is made in a third of a frozen dataclass's time.
    """

    experiment_id: ExperimentId
    number: int
    attempt: int
    sequence: int
    line: int
    step: int | None  # None: a final metric
    values: dict[str, float]
    first: bool
    objective: float | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsCut:
    """Deterministic: reports of the trial accepted after (line, sequence) are not part of it."""

    experiment_id: ExperimentId
    number: int
    line: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """A line that stands in ``queue`` no more: its algorithm raised at it, and a person left it out."""

    experiment_id: ExperimentId
    line: int
    queue: Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpaceRevision:
    experiment_id: ExperimentId
    line: int  # the journal line from which it holds
    search_space: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """How an advisor answered the request of ``line``. The parameters of a new trial are in its row."""

    experiment_id: ExperimentId
    line: int
    kind: DecisionKind
    number: int
    until_step: int | None = None
    forked_from: int | None = None
    dropped: tuple[int, ...] = ()

    def decision(self, parameters: Parameters | None) -> Decision:
        """As algorithms see it; ``parameters`` are those of the trial that the line made, None of a promotion."""
        return Decision(
            kind=self.kind,
            number=self.number,
            parameters=parameters,
            until_step=self.until_step,
            forked_from=self.forked_from,
            dropped=self.dropped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    experiment_id: ExperimentId
    queue: Queue
    line: int
    state: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIdempotencyKey:
    key: str
    body_digest: str
    experiment_id: ExperimentId
    at: float


@dataclass(slots=True, kw_only=True)
class Touched:
    """What commits changed, by name: enough to read it anew, and nothing of its content."""

    trials: dict[ExperimentId, set[int] | None] = field(default_factory=dict)  # None: more than TOUCHED_LIMIT
    checkpoints: dict[ExperimentId, set[int]] = field(default_factory=dict)  # numbers of trials that got or lost some
    search_spaces: set[ExperimentId] = field(default_factory=set)
    removed: set[ExperimentId] = field(default_factory=set)
    quota_groups: bool = False

    def add(self, later: Touched) -> None:
        """What a later commit changed; of what that removed, nothing else is said any more."""
        for experiment_id, numbers in later.trials.items():
            known = self.trials.setdefault(experiment_id, set())
            if known is not None and numbers is not None:
                known |= numbers
            if known is None or numbers is None or len(known) > TOUCHED_LIMIT:
                self.trials[experiment_id] = None
        for experiment_id, numbers in later.checkpoints.items():
            self.checkpoints.setdefault(experiment_id, set()).update(numbers)
        self.search_spaces |= later.search_spaces
        self.removed |= later.removed
        self.quota_groups |= later.quota_groups
        for experiment_id in later.removed:
            self.trials.pop(experiment_id, None)
            self.checkpoints.pop(experiment_id, None)
            self.search_spaces.discard(experiment_id)


@dataclass(slots=True)
class Changes:
    """Everything a step writes. Saved in the order of the fields; deletions last."""

    experiments: dict[ExperimentId, Experiment] = field(default_factory=dict)
    search_spaces: list[SearchSpaceRevision] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)  # digest → bytes; stored once
    trials: dict[tuple[ExperimentId, int], Trial] = field(default_factory=dict)
    decisions: list[StoredDecision] = field(default_factory=list)
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    journal: list[JournalLine] = field(default_factory=list)
    skipped_lines: list[SkippedLine] = field(default_factory=list)  # of those that were written before
    metrics: list[MetricRow] = field(default_factory=list)
    metric_cuts: list[MetricsCut] = field(default_factory=list)  # applied after ``metrics`` are inserted
    checkpoints: list[Checkpoint] = field(default_factory=list)
    named_assets: list[tuple[ExperimentId, str]] = field(default_factory=list)  # that trials left; digests
    unnamed_assets: list[tuple[ExperimentId, str]] = field(default_factory=list)  # that it needs no more; digests
    dropped_checkpoints: list[Checkpoint] = field(default_factory=list)  # and their blobs nobody else names
    fresh_blobs: set[str] = field(default_factory=set)  # not named yet, and not to be removed with what is dropped
    snapshots: list[StoredSnapshot] = field(default_factory=list)  # the newest of (experiment, queue) is enough
    idempotency_keys: list[StoredIdempotencyKey] = field(default_factory=list)
    quota_groups: dict[str, QuotaGroup | None] = field(default_factory=dict)  # None: deleted
    removing: dict[ExperimentId, Archive] = field(default_factory=dict)  # of those set aside
    deleted_experiments: list[ExperimentId] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__ if name != "fresh_blobs")

    def touched(self) -> Touched:
        """What they change, by name."""
        touched = Touched(trials={experiment_id: set() for experiment_id in (*self.experiments, *self.removing)})
        by_experiment: dict[ExperimentId, set[int]] = {}
        for experiment_id, number in self.trials:
            by_experiment.setdefault(experiment_id, set()).add(number)
        touched.add(Touched(trials=dict(by_experiment)))
        touched.add(self.touched_besides_trials())
        return touched

    def touched_besides_trials(self) -> Touched:
        touched = Touched(
            search_spaces={
                *(revision.experiment_id for revision in self.search_spaces),
                *(skipped.experiment_id for skipped in self.skipped_lines),
            },
            removed=set(self.deleted_experiments),
            quota_groups=bool(self.quota_groups),
        )
        for checkpoint in (*self.checkpoints, *self.dropped_checkpoints):
            touched.checkpoints.setdefault(checkpoint.experiment_id, set()).add(checkpoint.number)
        return touched

    def of(self, wanted: Callable[[ExperimentId], bool]) -> Changes:
        """What of them concerns the ``wanted`` experiments, and the blobs, of which nobody knows whose they are."""
        return Changes(
            experiments={k: e for k, e in self.experiments.items() if wanted(k)},
            search_spaces=[r for r in self.search_spaces if wanted(r.experiment_id)],
            blobs=self.blobs,
            trials={k: t for k, t in self.trials.items() if wanted(k[0])},
            decisions=[d for d in self.decisions if wanted(d.experiment_id)],
            attempts={k: a for k, a in self.attempts.items() if wanted(k.experiment_id)},
            journal=[line for line in self.journal if wanted(line.experiment_id)],
            skipped_lines=[s for s in self.skipped_lines if wanted(s.experiment_id)],
            metrics=[m for m in self.metrics if wanted(m.experiment_id)],
            metric_cuts=[c for c in self.metric_cuts if wanted(c.experiment_id)],
            checkpoints=[c for c in self.checkpoints if wanted(c.experiment_id)],
            named_assets=[named for named in self.named_assets if wanted(named[0])],
            unnamed_assets=[named for named in self.unnamed_assets if wanted(named[0])],
            dropped_checkpoints=[c for c in self.dropped_checkpoints if wanted(c.experiment_id)],
            fresh_blobs=self.fresh_blobs,
            snapshots=[s for s in self.snapshots if wanted(s.experiment_id)],
            idempotency_keys=[k for k in self.idempotency_keys if wanted(k.experiment_id)],
            removing={k: archive for k, archive in self.removing.items() if wanted(k)},
            deleted_experiments=[k for k in self.deleted_experiments if wanted(k)],
        )

    @property
    def only_counts(self) -> bool:
        """Whether nothing happened that would not happen again: cursors and clocks moved on, trials were suggested.

        A suggestion that nobody has seen yet is asked for once more.
        """
        if any(getattr(self, name) for name in self.__slots__ if name not in {"experiments", "trials"}):
            return False
        return all(
            trial.status is TrialStatus.WAITING and trial.reason is TrialReason.SUGGESTED and not trial.attempts
            for trial in self.trials.values()
        )
