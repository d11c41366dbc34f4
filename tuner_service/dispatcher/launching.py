"""Where and when attempts start, and how they are told to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest

from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher import endings, orders
from tuner_service.dispatcher.limits import CLAIMS_AT_ONCE
from tuner_service.dispatcher.placement import Claim, Placed, place
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.experiment import ExperimentReason, ExperimentSpec, ExperimentStatus
from tuner_service.domain.resources import Demand, Holding, Node
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, Trial, TrialReason, TrialStatus


def launch_waiting(step: Step) -> None:
    """Start what waits and has room, of all experiments that run: see ``placement.py`` for who goes first.

    Costs nothing while nothing has changed that could let a trial start.
    """
    state = step.state
    if not state.placement_is_due or not state.agents:
        return
    nodes = {name: node for name, node in state.agents.items() if node.takes_trials}
    state.placement_is_due = False
    more = True
    while more:
        claims, more = _claims(step)
        placed = _place(step, claims, nodes) if claims else []
        for one in placed:
            _launch(step, one)
        more = more and bool(placed)


def end_pauses(step: Step, xs: ExperimentState) -> None:
    """Trials that have paused long enough before their next attempt may be launched."""
    for number in [number for number, until in xs.held_until.items() if until <= step.at]:
        del xs.held_until[number]
        step.state.placement_is_due = True


def _place(step: Step, claims: list[Claim], nodes: Mapping[str, Node]) -> list[Placed]:
    """What asks for nothing starts at once, on a node without devices if there is one; the rest is placed."""
    state = step.state
    free = [claim for claim in claims if claim.demand.is_nothing]
    asking = [claim for claim in claims if not claim.demand.is_nothing]
    placed = place(asking, nodes=nodes, held=state.ledger, groups=state.groups) if asking else []
    if free and nodes:
        node = min(nodes.values(), key=lambda n: (len(n.devices), -state.ledger.free_cpus(n), n.agent_id))
        placed += [Placed(claim=claim, holdings=(Holding(agent_id=node.agent_id),)) for claim in free]
    return placed


def demand_of(spec: ExperimentSpec, *, peak_gpu_bytes: int | None = None) -> Demand:
    """Of one trial. ``peak_gpu_bytes``: what trials of the experiment were seen to use."""
    template = spec.trial
    return Demand(
        cpus=template.cpus,
        memory_bytes=template.memory_bytes or 0,
        gpus=template.gpus,
        request=template.gpu_request,
        gpu_memory_bytes=template.gpu_memory_bytes,
        peak_gpu_bytes=peak_gpu_bytes,
        labels=tuple(sorted(template.labels.items())),
        nodes=template.nodes,
    )


def _claims(step: Step) -> tuple[list[Claim], bool]:
    """Of each experiment the lowest waiting numbers for which its parallelism has room; whether there are more."""
    claims: list[Claim] = []
    more = False
    for xs in step.state.experiments.values():
        experiment = xs.experiment
        if experiment.status is not ExperimentStatus.RUNNING or not experiment.counts.get(TrialStatus.WAITING.value):
            continue
        if experiment.spec.trial.is_asked_for:
            continue
        room = experiment.spec.budget.parallel - len(xs.attempts)
        if room <= 0:
            continue
        waiting = [t for t in xs.trials.values() if t.status is TrialStatus.WAITING and t.number not in xs.held_until]
        if not waiting:
            continue
        since = min(trial.created_at for trial in waiting)
        demand = demand_of(experiment.spec, peak_gpu_bytes=experiment.peak_gpu_bytes)
        more = more or min(room, len(waiting)) > CLAIMS_AT_ONCE
        for trial in nsmallest(min(room, CLAIMS_AT_ONCE), waiting, key=_number):
            claims.append(  # noqa: PERF401  # a comprehension over both would be hard to read
                Claim(
                    experiment_id=xs.id,
                    number=trial.number,
                    demand=demand,
                    group=experiment.spec.quota_group,
                    priority=experiment.priority,
                    since=since,
                )
            )
    return claims, more


def _number(trial: Trial) -> int:
    return trial.number


def _launch(step: Step, placed: Placed) -> None:
    ts = step.trial(step.find(placed.claim.experiment_id), placed.claim.number)
    trial, checkpoints = ts.trial, ts.checkpoints
    first, *others = (Part(agent_id=one.agent_id, nonce=step.state.next_nonce()) for one in placed.holdings)
    attempt = Attempt(
        key=AttemptKey(experiment_id=ts.xs.id, number=ts.number, attempt=trial.attempts + 1),
        nonce=first.nonce,
        lineage=step.state.lineage,
        agent_id=first.agent_id,
        status=AttemptStatus.STARTING,
        created_at=step.at,
        last_heard_at=step.at,
        restored_step=checkpoints[-1].step if checkpoints else None,
        holdings=() if placed.claim.demand.is_nothing else placed.holdings,
        parts=(first, *others) if others else (),
    )
    begin_attempt(ts, attempt, TrialReason.LAUNCHED)
    orders.order_launch(ts)


def begin_attempt(ts: TrialStep, attempt: Attempt, reason: TrialReason) -> None:
    """The trial runs, in this attempt, which is its live one."""
    trial = ts.trial
    ts.add_attempt(attempt)
    launched = replace(
        trial,
        attempts=attempt.key.attempt,
        final={},  # an attempt that was told to stop may have reported one from half-way
        started_at=trial.started_at if trial.started_at is not None else ts.step.at,
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
