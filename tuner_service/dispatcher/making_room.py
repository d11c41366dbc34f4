"""Running trials that leave for others of a higher priority, where their experiments allow it.

One is asked to leave once its attempt has run for PREEMPTED_AFTER_S and has saved a checkpoint itself: so each attempt
brings its trial on, and nothing that a script cannot save is thrown away. It leaves as from a drained node: it is told,
saves within the grace, and goes on from there in a new attempt, uncharged.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner_service.dispatcher import launching
from tuner_service.dispatcher.limits import PREEMPTED_AFTER_S, PREEMPTION_LOOK_S
from tuner_service.dispatcher.placement import Preempted
from tuner_service.dispatcher.preemption import Running
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus


def some_may_leave(state: DispatcherState) -> bool:
    """Whether any that run may ever have to."""
    return any(xs.attempts and xs.experiment.spec.preemptible for xs in state.experiments.values())


def running(step: Step) -> list[Running]:
    """Those that leave by now, of all experiments, and those that may be asked to, on connected nodes."""
    return [one for xs in step.all() for one in _of(step, xs)]


def _of(step: Step, xs: ExperimentState) -> Iterator[Running]:
    for attempt in xs.attempts.values():
        ts = step.trial(xs, attempt.key.number)
        leaves, may_leave = ts.trial.status is TrialStatus.STOPPING, _may_leave(ts)
        is_there = bool(attempt.holdings) and attempt.agent_ids <= step.state.agents.keys()
        if is_there and (leaves or may_leave):
            yield Running(
                experiment_id=xs.id,
                number=ts.number,
                group=xs.experiment.spec.quota_group,
                priority=xs.experiment.priority,
                holdings=attempt.holdings,
                leaves=leaves,
                may_leave=may_leave,
                saved_at=ts.checkpoints[-1].at if may_leave else 0.0,
            )


def _may_leave(ts: TrialStep) -> bool:
    attempt = ts.live
    if not ts.spec.preemptible or ts.trial.status is not TrialStatus.RUNNING:
        return False
    if attempt.status is not AttemptStatus.RUNNING or attempt.started_at is None:
        return False
    has_run_s = ts.step.at - attempt.started_at
    return has_run_s >= PREEMPTED_AFTER_S and bool(ts.checkpoints) and ts.checkpoints[-1].attempt == attempt.key.attempt


def ask_to_leave(step: Step, preempted: Preempted) -> None:
    ts = step.trial(step.find(preempted.running.experiment_id), preempted.running.number)
    claim = preempted.claim
    waits = f"{claim.experiment_id}/{claim.number}"
    message = f"makes room for trial {waits} of priority {claim.priority}; goes on from its newest checkpoint"
    launching.ask_to_stop(ts, Why(reason=TrialReason.PREEMPTED, message=message))
    ts.journal(LineKind.TRIAL_PREEMPTED, {"attempt": ts.live.key.attempt, "for": waits, "priority": claim.priority})


def look_again(step: Step) -> None:
    """What may not leave yet may do so later, without anything else that happens."""
    looked_at = step.state.short_since
    if looked_at is not None and not 0.0 <= step.at - looked_at < PREEMPTION_LOOK_S:
        step.state.placement_is_due = True
