"""One step's desk: the state, what the step writes, and what it wants done. Every status moves through here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tuner_service.dispatcher import transitions
from tuner_service.dispatcher.changes import Changes, JournalLine
from tuner_service.dispatcher.effects import Deliver, Effect, Tell, ToOneAgent, WarnQueueLength
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem
from tuner_service.dispatcher.limits import DETAIL_LIMIT, MESSAGE_LIMIT, QUEUE_WARNING_LENGTH
from tuner_service.dispatcher.routing import LineKind, queues_for
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.domain.errors import NotFoundError
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import Attempt, AttemptStatus, Trial, TrialReason, TrialStatus

ItemT = TypeVar("ItemT", bound=QueueItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a status moves: a reason from the closed list, a sentence, and a traceback where there is one."""

    reason: TrialReason | ExperimentReason
    message: str = ""
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Step:
    state: DispatcherState
    changes: Changes
    at: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    ended: dict[tuple[str, int], float] = field(
        default_factory=dict
    )  # when the attempts ended that this step is told of

    def find(self, experiment_id: str) -> ExperimentState:
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

    # ── rows ────────────────────────────────────────────────────────────────────────────────────
    def put_experiment(self, xs: ExperimentState, **fields: Any) -> Experiment:
        """Change fields of the row (never the status). Time spent running is brought up to date on the way."""
        experiment = xs.experiment
        if experiment.running_since is not None:
            passed = max(0.0, self.at - experiment.running_since)
            fields = {"running_s": experiment.running_s + passed, "running_since": self.at} | fields
        if "spec" in fields or "priority" in fields:
            self.state.placement_is_due = True
        xs.experiment = replace(experiment, **fields)
        self.changes.experiments[xs.id] = xs.experiment
        return xs.experiment

    def put_trial(self, xs: ExperimentState, number: int, **fields: Any) -> Trial:
        trial = xs.trials[number] = replace(xs.trials[number], **fields)
        self.changes.trials[xs.id, number] = trial
        return trial

    def put_attempt(self, xs: ExperimentState, number: int, **fields: Any) -> Attempt:
        attempt = xs.attempts[number] = replace(xs.attempts[number], **fields)
        self.changes.attempts[attempt.key] = attempt
        return attempt

    # ── moves ───────────────────────────────────────────────────────────────────────────────────
    def move_experiment(self, xs: ExperimentState, requested: ExperimentStatus, why: Why, **fields: Any) -> None:
        before = xs.experiment.status
        transitions.check(transitions.EXPERIMENT_TRANSITIONS, f"experiment {xs.id}", before, requested)
        self.state.placement_is_due = True
        self.put_experiment(
            xs,
            status=requested,
            reason=why.reason,
            message=why.message[:MESSAGE_LIMIT],
            detail=why.detail[-DETAIL_LIMIT:],
            running_since=self.at if requested is ExperimentStatus.RUNNING else None,
            ended_at=self.at if requested.has_ended else None,
            **fields,
        )
        self.journal(
            xs,
            LineKind.EXPERIMENT_MOVED,
            {"from": before.value, "to": requested.value, "reason": why.reason.value, "message": why.message},
        )

    def move_trial(self, xs: ExperimentState, number: int, requested: TrialStatus, why: Why, **fields: Any) -> Trial:
        before = xs.trials[number].status
        transitions.check(transitions.TRIAL_TRANSITIONS, f"trial {xs.id}/{number}", before, requested)
        trial = self.put_trial(
            xs, number, status=requested, reason=why.reason, message=why.message[:MESSAGE_LIMIT], **fields
        )
        if requested is TrialStatus.WAITING:
            self.state.placement_is_due = True
        xs.held_until.pop(number, None)
        counts = dict(xs.experiment.counts)
        counts[before.value] -= 1
        counts[requested.value] = counts.get(requested.value, 0) + 1
        self.put_experiment(xs, counts={status: n for status, n in counts.items() if n})
        return trial

    def add_trial(self, xs: ExperimentState, trial: Trial) -> None:
        xs.trials[trial.number] = trial
        xs.seen_steps[trial.number] = set()
        self.changes.trials[xs.id, trial.number] = trial
        self.state.placement_is_due = True
        counts = dict(xs.experiment.counts)
        counts[trial.status.value] = counts.get(trial.status.value, 0) + 1
        self.put_experiment(xs, counts=counts)

    def take_number(self, xs: ExperimentState) -> int:
        """The number of the next trial: one that was given back, or a new one."""
        free, number = xs.experiment.free_numbers, xs.experiment.next_number
        if free:
            self.put_experiment(xs, free_numbers=free[1:])
            return free[0]
        self.put_experiment(xs, next_number=number + 1)
        return number

    def give_back_number(self, xs: ExperimentState, number: int) -> None:
        """No trial came of it; the lowest such number is used first."""
        self.put_experiment(xs, free_numbers=tuple(sorted((*xs.experiment.free_numbers, number))))

    def move_attempt(self, xs: ExperimentState, number: int, requested: AttemptStatus, **fields: Any) -> Attempt:
        """An attempt that reaches a final status is no longer the trial's live one."""
        before = xs.attempts[number]
        transitions.check(transitions.ATTEMPT_TRANSITIONS, f"attempt {before.key}", before.status, requested)
        attempt = self.put_attempt(xs, number, status=requested, **fields)
        if requested.is_final:
            del xs.attempts[number]
            self.state.ledger.remove(xs.held(before))
            self.state.placement_is_due = True
            xs.ordered_at.pop(number, None)
            xs.rejected_records.pop(number, None)
        return attempt

    def let_go(self, xs: ExperimentState, number: int) -> None:
        """Drop an ended and told trial from memory; its row stays."""
        for table in (xs.trials, xs.seen_steps, xs.checkpoints):
            table.pop(number, None)

    # ── the journal and the queues ──────────────────────────────────────────────────────────────
    def journal(self, xs: ExperimentState, kind: LineKind, payload: dict[str, Any], *, judged: bool = True) -> int:
        """Append a line and return its number. The caller routes its item with ``enqueue``."""
        line = xs.experiment.next_line
        self.put_experiment(xs, next_line=line + 1)
        queues = queues_for(kind, xs.experiment.spec, judged=judged)
        self.changes.journal.append(
            JournalLine(experiment_id=xs.id, line=line, at=self.at, kind=kind.value, payload=payload, queues=queues)
        )
        return line

    def enqueue(self, xs: ExperimentState, kind: LineKind, item: QueueItem) -> None:
        """Put ``item`` into the queues its line belongs to, and before the worker if one is up."""
        for queue in queues_for(kind, xs.experiment.spec):
            waiting = xs.queues[queue]
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


def report_count(item: QueueItem) -> int:
    """How many reports stand in the line."""
    return len(item.reports) if isinstance(item, MetricsReported) else 0
