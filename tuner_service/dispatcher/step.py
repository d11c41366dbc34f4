"""One step's desk: the state, what the step writes, and what it wants done. Every status moves through here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tuner_service.dispatcher import transitions
from tuner_service.dispatcher.changes import Changes, JournalLine
from tuner_service.dispatcher.effects import Deliver, Effect, Tell, ToOneAgent, WarnQueueLength
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem
from tuner_service.dispatcher.limits import (
    ASSESSOR_REPORTS_LIMIT,
    DETAIL_LIMIT,
    MESSAGE_LIMIT,
    METRICS_A_REPORT,
    QUEUE_WARNING_LENGTH,
)
from tuner_service.dispatcher.routing import LineKind, queues_for
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.domain.errors import ConflictError, NotFoundError
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentSpec, ExperimentStatus
from tuner_service.domain.replacing import replaced
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.running_time import running_time_s
from tuner_service.domain.steps import Steps
from tuner_service.domain.trial import Attempt, AttemptStatus, Checkpoint, Trial, TrialReason, TrialStatus

ReasonT = TypeVar("ReasonT", TrialReason, ExperimentReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why(Generic[ReasonT]):
    """Why a status moves: a reason from the closed list, a sentence, and a traceback where there is one."""

    reason: ReasonT
    message: str = ""
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Step:
    state: DispatcherState
    changes: Changes
    at: float = 0.0
    by: str = ""  # who asked for the change that is carried out; stands in the lines that it writes
    effects: list[Effect] = field(default_factory=list)
    ended: dict[tuple[str, int], float] = field(
        default_factory=dict
    )  # when the attempts ended that this step is told of

    def find(self, experiment_id: str) -> ExperimentState:
        """NotFoundError, or ConflictError for one that was set aside."""
        if experiment_id in self.state.set_aside:
            raise ConflictError(self.state.set_aside[experiment_id].why, ["delete"])
        try:
            return self.state.experiments[experiment_id]
        except KeyError:
            raise NotFoundError("experiment", experiment_id) from None

    def all(self) -> Iterator[ExperimentState]:
        return iter(list(self.state.experiments.values()))

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def tell(self, agent_id: str, message: ToOneAgent) -> None:
        self.effects.append(Tell(agent_id=agent_id, message=message))

    def one_by_one(self, found: Iterable[TrialStep]) -> Iterator[TrialStep]:
        """Each of them, of whatever experiments; should seeing to one raise, it is known whose it was."""
        for ts in found:
            self.state.at_work = ts.xs.id
            yield ts
        self.state.at_work = ""

    # ── rows ────────────────────────────────────────────────────────────────────────────────────
    def trial(self, xs: ExperimentState, number: int) -> TrialStep:
        """One trial that is in memory, for all that this step does to it."""
        return TrialStep(self, xs, number)

    def trials(self, xs: ExperimentState, *statuses: TrialStatus) -> Iterator[TrialStep]:
        """Those that had one of these statuses when this was called, by number."""
        return (TrialStep(self, xs, trial.number) for trial in xs.trials_with(*statuses))

    def put_experiment(self, xs: ExperimentState, experiment: Experiment) -> None:
        """Replace the row by one that has its status. Time spent running is brought up to date on the way."""
        transitions.check_unmoved("experiment", xs.id, xs.experiment.status, experiment.status)
        if experiment.running_since is not None and experiment.running_since != self.at:
            experiment = replaced(experiment, running_s=self._running_s(experiment), running_since=self.at)
        self._write_experiment(xs, experiment)

    def _running_s(self, experiment: Experiment) -> float:
        """Up to now."""
        return running_time_s(experiment.running_s, experiment.running_since, self.at)

    def _write_experiment(self, xs: ExperimentState, experiment: Experiment) -> None:
        before = xs.experiment
        if experiment.spec is not before.spec or experiment.priority != before.priority:
            self.state.placement_is_due = True
        xs.experiment = self.changes.experiments[xs.id] = experiment

    # ── moves ───────────────────────────────────────────────────────────────────────────────────
    def move_experiment(
        self,
        xs: ExperimentState,
        requested: ExperimentStatus,
        why: Why[ExperimentReason],
        row: Experiment | None = None,
    ) -> None:
        """``row`` is the experiment with what else changes at once."""
        before = xs.experiment.status
        transitions.check(transitions.EXPERIMENT_TRANSITIONS, f"experiment {xs.id}", before, requested)
        self.state.placement_is_due = True
        row = row or xs.experiment
        moved = replace(
            row,
            status=requested,
            reason=why.reason,
            message=why.message[:MESSAGE_LIMIT],
            detail=why.detail[-DETAIL_LIMIT:],
            running_s=self._running_s(row),
            running_since=self.at if requested is ExperimentStatus.RUNNING else None,
            ended_at=self.at if requested.has_ended else None,
        )
        self._write_experiment(xs, moved)
        self.journal(
            xs,
            LineKind.EXPERIMENT_MOVED,
            {"from": before.value, "to": requested.value, "reason": why.reason.value, "message": why.message},
        )

    def add_trial(self, xs: ExperimentState, trial: Trial) -> None:
        xs.note(trial)
        xs.seen_steps[trial.number] = Steps()
        self.changes.trials[xs.id, trial.number] = trial
        self.state.placement_is_due = True
        counts = dict(xs.experiment.counts)
        counts[trial.status.value] = counts.get(trial.status.value, 0) + 1
        self.put_experiment(xs, replace(xs.experiment, counts=counts))

    def take_number(self, xs: ExperimentState) -> int:
        """The number of the next trial: one that was given back, or a new one."""
        free, number = xs.experiment.free_numbers, xs.experiment.next_number
        if free:
            self.put_experiment(xs, replace(xs.experiment, free_numbers=free[1:]))
            return free[0]
        self.put_experiment(xs, replace(xs.experiment, next_number=number + 1))
        return number

    def give_back_number(self, xs: ExperimentState, number: int) -> None:
        """No trial came of it; the lowest such number is used first."""
        free = tuple(sorted((*xs.experiment.free_numbers, number)))
        self.put_experiment(xs, replace(xs.experiment, free_numbers=free))

    # ── the journal and the queues ──────────────────────────────────────────────────────────────
    def journal(self, xs: ExperimentState, kind: LineKind, payload: dict[str, Any], *, judged: bool = True) -> int:
        """Append a line and return its number. The caller routes its item with ``enqueue``."""
        experiment, line = xs.experiment, xs.experiment.next_line
        since = None if experiment.running_since is None else self.at
        # With the clock in one go: rows have many fields, and every step writes a line.
        running_s = self._running_s(experiment)
        self._write_experiment(xs, replaced(experiment, next_line=line + 1, running_s=running_s, running_since=since))
        queues = queues_for(kind, xs.experiment.spec, judged=judged)
        if self.by:
            payload = {**payload, "by": self.by}
        self.changes.journal.append(
            JournalLine(experiment_id=xs.id, line=line, at=self.at, kind=kind.value, payload=payload, queues=queues)
        )
        return line

    def enqueue(self, xs: ExperimentState, kind: LineKind, item: QueueItem) -> None:
        """Put ``item`` into the queues its line belongs to, and before the worker if one is up.

        Reports beyond ASSESSOR_REPORTS_LIMIT stay in their rows: whoever delivers them reads them there.
        """
        for queue in queues_for(kind, xs.experiment.spec):
            waiting = xs.queues[queue]
            if isinstance(item, MetricsReported) and waiting.reports >= ASSESSOR_REPORTS_LIMIT:
                item = replace(item, reports=(), sequences=(), values=(), unread=report_count(item))
            waiting.pending.append(item)
            waiting.reports += report_count(item)
            if len(waiting.pending) > QUEUE_WARNING_LENGTH and not waiting.warned:
                waiting.warned = True
                self.do(WarnQueueLength(experiment_id=xs.id, queue=queue, depth=len(waiting.pending)))
            if xs.worker.takes_items:
                self.deliver(xs, queue, item)

    def deliver(self, xs: ExperimentState, queue: Queue, item: QueueItem) -> None:
        if xs.queues[queue].head_since is None:
            xs.queues[queue].head_since = self.at
        self.do(Deliver(experiment_id=xs.id, generation=xs.worker.generation, queue=queue, item=item))


class TrialStep:
    """One trial in a step: its row, its live attempt, and every way to change them.

    A row changes by being replaced, ``ts.put(replace(ts.trial, charged=1))``, so that a field of a wrong name or type
    is found by the type checker. What moves by a table moves in one function here; ``put`` refuses to move it.
    """

    __slots__ = ("number", "step", "xs")

    def __init__(self, step: Step, xs: ExperimentState, number: int) -> None:
        self.step, self.xs, self.number = step, xs, number

    def __str__(self) -> str:
        return f"{self.xs.id}/{self.number}"

    @property
    def trial(self) -> Trial:
        return self.xs.trials[self.number]

    @property
    def attempt(self) -> Attempt | None:
        """The live one."""
        return self.xs.attempts.get(self.number)

    @property
    def live(self) -> Attempt:
        """The live attempt, of a trial that has one."""
        return self.xs.attempts[self.number]

    @property
    def spec(self) -> ExperimentSpec:
        return self.xs.experiment.spec

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """Oldest first."""
        return self.xs.checkpoints.get(self.number, [])

    # ── the trial ───────────────────────────────────────────────────────────────────────────────
    def put(self, trial: Trial) -> Trial:
        """Replace the row by one that has its status, and stands at its rung where it stood."""
        before = self.trial
        transitions.check_unmoved("trial", self, before.status, trial.status)
        if trial.rungs is not before.rungs:
            transitions.check_unmoved("trial", self, before.rungs.phase, trial.rungs.phase)
        return self._write(trial)

    def move(self, requested: TrialStatus, why: Why[TrialReason], row: Trial | None = None) -> Trial:
        """``row`` is the trial with what else changes at once."""
        before, step, xs = self.trial, self.step, self.xs
        transitions.check(transitions.TRIAL_TRANSITIONS, f"trial {self}", before.status, requested)
        message = why.message[:MESSAGE_LIMIT]
        trial = self._write(replace(row or before, status=requested, reason=why.reason, message=message))
        if requested is TrialStatus.WAITING:
            step.state.placement_is_due = True
        xs.held_until.pop(self.number, None)
        counts = dict(xs.experiment.counts)
        counts[before.status.value] -= 1
        counts[requested.value] = counts.get(requested.value, 0) + 1
        step.put_experiment(xs, replace(xs.experiment, counts={status: n for status, n in counts.items() if n}))
        return trial

    def move_rungs(self, rungs: Rungs) -> Trial:
        """The trial comes to its rung, rests there, or goes on from it."""
        before = self.trial
        transitions.check(transitions.RUNG_TRANSITIONS, f"trial {self}", before.rungs.phase, rungs.phase)
        return self._write(replace(before, rungs=rungs))

    def _write(self, trial: Trial) -> Trial:
        self.step.changes.trials[self.xs.id, self.number] = trial
        self.xs.note(trial)
        return trial

    def let_go(self) -> None:
        """Drop a trial that has ended and was told from memory; its row stays."""
        self.xs.let_go(self.number)

    # ── its live attempt ────────────────────────────────────────────────────────────────────────
    def put_attempt(self, attempt: Attempt) -> Attempt:
        """Replace the row by one that has its status."""
        transitions.check_unmoved("attempt", attempt.key, self.live.status, attempt.status)
        return self._write_attempt(attempt)

    def add_attempt(self, attempt: Attempt) -> None:
        """From now on it holds what its row says."""
        self._write_attempt(attempt)
        self.step.state.ledger.add(self.xs.held(attempt))

    def move_attempt(self, requested: AttemptStatus, row: Attempt | None = None) -> Attempt:
        """An attempt that reaches a final status is no longer the trial's live one, and holds nothing."""
        before, xs = self.live, self.xs
        transitions.check(transitions.ATTEMPT_TRANSITIONS, f"attempt {before.key}", before.status, requested)
        attempt = self._write_attempt(replace(row or before, status=requested))
        if requested.is_final:
            del xs.attempts[self.number]
            self.step.state.ledger.remove(xs.held(before))
            self.step.state.placement_is_due = True
            xs.ordered_at.pop(self.number, None)
            xs.rejected_records.pop(self.number, None)
            xs.over.discard(self.number)
        return attempt

    def heard(self) -> None:
        """Its holder has said something of it. Not written by itself: with each life of the service it begins anew."""
        self.xs.attempts[self.number] = replaced(self.live, last_heard_at=self.step.at)

    def _write_attempt(self, attempt: Attempt) -> Attempt:
        self.xs.attempts[self.number] = self.step.changes.attempts[attempt.key] = attempt
        return attempt

    def tell(self, message: ToOneAgent) -> None:
        """Send ``message`` to the agent that holds the live attempt."""
        self.step.tell(self.live.agent_id, message)

    # ── the journal ─────────────────────────────────────────────────────────────────────────────
    def journal(self, kind: LineKind, payload: dict[str, Any], *, judged: bool = True) -> int:
        """Append a line about this trial and return its number."""
        return self.step.journal(self.xs, kind, {"number": self.number} | payload, judged=judged)


def report_count(item: QueueItem) -> int:
    """How many reports stand in the line; METRICS_A_REPORT metrics that it holds beside them are one more."""
    if not isinstance(item, MetricsReported):
        return 0
    return item.unread or len(item.reports) + sum(map(len, item.values)) // METRICS_A_REPORT
