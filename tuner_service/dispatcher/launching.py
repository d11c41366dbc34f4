"""How attempts begin, and how they are told to stop."""

from __future__ import annotations

from dataclasses import replace

from tuner_service.dispatcher import endings, orders
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.experiment import ExperimentReason, ExperimentSpec, ExperimentStatus
from tuner_service.domain.resources import POOL_LABEL, Demand
from tuner_service.domain.trial import Attempt, TrialReason, TrialStatus


def demand_of(spec: ExperimentSpec, *, peak_gpu_bytes: int | None = None) -> Demand:
    """Of one trial. ``peak_gpu_bytes``: what trials of the experiment were seen to use."""
    template, pool = spec.trial, spec.executor.pool
    labels = template.labels | {POOL_LABEL: pool} if pool else template.labels
    return Demand(
        cpus=template.cpus,
        memory_bytes=template.memory_bytes or 0,
        gpus=template.gpus,
        request=template.gpu_request,
        gpu_memory_bytes=template.gpu_memory_bytes,
        peak_gpu_bytes=peak_gpu_bytes,
        labels=tuple(sorted(labels.items())),
        executors=spec.executor.names,
        nodes=template.nodes,
    )


def begin_attempt(ts: TrialStep, attempt: Attempt, reason: TrialReason) -> None:
    """The trial runs, in this attempt, which is its live one."""
    trial = ts.trial
    ts.add_attempt(attempt)
    launched = replace(
        trial,
        attempts=attempt.key.attempt,
        final={},  # an attempt that was told to stop may have reported one from half-way
        started_at=trial.started_at if trial.started_at is not None else ts.step.at,
        running_since=ts.step.at,
    )
    ts.move(TrialStatus.RUNNING, Why(reason=reason), launched)
    ts.journal(LineKind.ATTEMPT_LAUNCHED, {"attempt": attempt.key.attempt})


def order_again(ts: TrialStep) -> None:
    """Repeat what was not confirmed. An agent told to stop what it never started spends the nonce."""
    if ts.trial.status is TrialStatus.STOPPING:
        orders.order_stop(ts, ts.trial.reason)
    else:
        orders.order_launch(ts)


def order_wanted_stop(ts: TrialStep) -> None:
    """Order the stop of a trial that is stopping.

    Deterministic: whether the order or the end of a script comes first where it is to rest may decide nothing. So one
    that may end there is let, until it knows that it is to rest or has gone on; or for as long as a grace.
    """
    trial = ts.trial
    rests = ts.spec.deterministic and trial.reason is TrialReason.RUNG_REACHED
    if rests and endings.may_end_at_rung(trial, ts.live):
        ts.xs.ordered_at[ts.number] = ts.step.at
    else:
        orders.order_stop(ts, trial.reason)


def ask_to_stop(ts: TrialStep, why: Why[TrialReason]) -> None:
    """Stop a trial that runs: it ends, or goes on in another attempt, when this one has ended."""
    ts.move(TrialStatus.STOPPING, why)
    orders.order_stop(ts, why.reason)


def stop_trial(ts: TrialStep, target: TrialStatus, why: Why[TrialReason]) -> None:
    """Stop a trial that has not ended. With an attempt alive it is asked, and ends when the attempt has."""
    trial = ts.trial
    if ts.attempt is not None:
        if trial.status is TrialStatus.RUNNING:
            ts.move(TrialStatus.STOPPING, why)
        elif endings.STOP_TARGETS.get(trial.reason, TrialStatus.PAUSED) is TrialStatus.PAUSED:
            # Asked to make room before; now it is given up for good.
            ts.put(replace(trial, reason=why.reason, message=why.message))
        orders.order_stop(ts, why.reason)
    elif target.is_final:
        endings.end_trial(ts, target, why)
    else:
        ts.move(target, why)


def begin_stop(step: Step, xs: ExperimentState, target: ExperimentStatus, why: Why[ExperimentReason]) -> None:
    """Ask every trial to stop; ``target`` is reached when the last attempt has ended."""
    step.move_experiment(xs, ExperimentStatus.STOPPING, why, replace(xs.experiment, stop_to=target))
    interrupted = Why(reason=TrialReason.EXPERIMENT_STOPPED, message="goes on when the experiment is resumed")
    for ts in step.trials(xs, TrialStatus.WAITING, TrialStatus.RUNNING):
        if ts.trial.pending_end is None:
            stop_trial(ts, TrialStatus.PAUSED, interrupted)
