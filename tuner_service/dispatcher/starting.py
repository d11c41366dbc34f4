"""Where and when trials start, and which leave for them: see ``placement.py`` for who goes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nsmallest

from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher import launching, making_room, orders
from tuner_service.dispatcher.limits import CLAIMS_AT_ONCE
from tuner_service.dispatcher.placement import Decision, Placed, decide
from tuner_service.dispatcher.quotas import Claim
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.experiment import ExperimentId, ExperimentStatus
from tuner_service.domain.resources import Holding, Node
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, Trial, TrialReason, TrialStatus


def launch_waiting(step: Step) -> None:
    """Start what waits and has room, of all experiments. Costs nothing while nothing could let a trial start."""
    state = step.state
    if not state.placement_is_due or not state.agents:
        return
    nodes = {name: node for name, node in state.agents.items() if node.takes_trials}
    state.placement_is_due = False
    state.short_since = None
    advanced, more = state.at_work, True
    while more:
        claims, more = _claims(step)
        state.at_work = ""
        decision = _decide(step, claims, nodes)
        for one in decision.placed:
            state.at_work = one.claim.experiment_id
            _launch(step, one)
        for leaving in decision.preempted:
            state.at_work = leaving.running.experiment_id
            making_room.ask_to_leave(step, leaving)
        if decision.is_short and making_room.some_may_leave(state):
            state.short_since = step.at
        more = more and bool(decision.placed or decision.preempted)
    state.at_work = advanced


def end_pauses(step: Step, xs: ExperimentState) -> None:
    """Trials that have paused long enough before their next attempt may be launched."""
    for number in [number for number, until in xs.held_until.items() if until <= step.at]:
        del xs.held_until[number]
        step.state.placement_is_due = True


def _decide(step: Step, claims: list[Claim], nodes: Mapping[str, Node]) -> Decision:
    """What asks for nothing starts at once, on a node without devices if there is one; the rest is placed."""
    state = step.state
    free = [claim for claim in claims if claim.demand.is_nothing]
    asking = [claim for claim in claims if not claim.demand.is_nothing]
    placed: list[Placed] = []
    if free and nodes:
        node = min(nodes.values(), key=lambda n: (len(n.devices), -state.ledger.free_cpus(n), n.agent_id))
        placed = [Placed(claim=claim, holdings=(Holding(agent_id=node.agent_id),)) for claim in free]
    if not asking:
        return Decision(placed=placed, preempted=[])
    running = (lambda: making_room.running(step)) if making_room.some_may_leave(state) else None

    def decided(some: list[Claim]) -> Decision:
        return decide(some, nodes=nodes, held=state.ledger, groups=state.groups, running=running)

    try:
        found = decided(asking)
    except Exception:
        state.at_work = _unplaceable(asking, decided)
        raise
    return Decision(placed=found.placed + placed, preempted=found.preempted, is_short=found.is_short)


def _unplaceable(claims: list[Claim], decided: Callable[[list[Claim]], Decision]) -> ExperimentId:
    """With the claims of which experiment it raises, too; "" where it takes several."""
    for experiment_id in dict.fromkeys(claim.experiment_id for claim in claims):
        try:
            decided([claim for claim in claims if claim.experiment_id == experiment_id])
        except Exception:  # noqa: BLE001  # whatever it is, that experiment brings it about
            return experiment_id
    return ""


def _claims(step: Step) -> tuple[list[Claim], bool]:
    """Of each experiment the lowest waiting numbers for which its parallelism has room; whether there are more."""
    claims: list[Claim] = []
    more = False
    for xs in step.state.experiments.values():
        step.state.at_work = xs.id
        experiment = xs.experiment
        if experiment.status is not ExperimentStatus.RUNNING or not experiment.counts.get(TrialStatus.WAITING.value):
            continue
        if experiment.spec.trial.is_asked_for:
            continue
        room = experiment.spec.budget.parallel - len(xs.attempts)
        if room <= 0:
            continue
        waiting = [xs.trials[number] for number in xs.waiting if number not in xs.held_until]
        if not waiting:
            continue
        since = min(trial.created_at for trial in waiting)
        demand = launching.demand_of(experiment.spec, peak_gpu_bytes=experiment.peak_gpu_bytes)
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
    launching.begin_attempt(ts, attempt, TrialReason.LAUNCHED)
    orders.order_launch(ts)
