"""What agents tell: that they are there, what their attempts reported, and how these ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trials.wire.attempt import AttemptKey
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from trials.wire.plain import to_plain
from trials.wire.records import (
    NoticeRecord,
    ProcessRecord,
)
from tuner_service.dispatcher import attempts, devices, launching, orders, parts, phases, reports
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    AttemptStarted,
    OutputCollected,
    PartPrepared,
    ReportsReceived,
)
from tuner_service.dispatcher.effects import WelcomeAgent
from tuner_service.dispatcher.limits import (
    ASSESSOR_QUEUE_LIMIT,
    ASSESSOR_REPORTS_LIMIT,
    LAUNCH_REPEAT_S,
    REFUSED_REPORTS_RETRY_S,
    SET_ASIDE_RETRY_S,
    UNJUDGED_REPORTS_RETRY_S,
)
from tuner_service.dispatcher.reconcile import Adopt, AwaitExit, DeclareLost, Finding, LaunchAgain, StopStray, reconcile
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.replacing import replaced
from tuner_service.domain.resources import Node, executor_of
from tuner_service.domain.trial import EVALUATOR, Attempt, AttemptStatus, PartState, TrialReason, TrialStatus


# ── agents come and go ──────────────────────────────────────────────────────────────────────────
def connected(step: Step, command: AgentConnected) -> list[ExperimentState]:
    """Settle what the agent observes with what the rows say; the experiments that may now go on."""
    if command.agent_id not in step.state.retired:
        step.state.agents[command.agent_id] = Node(
            agent_id=command.agent_id,
            cpus=command.cpus,
            memory_bytes=command.memory_bytes,
            devices=command.devices,
            labels=command.labels,
            executor=executor_of(command.agent_id),
            trouble=command.trouble,
            drained=command.drained,
        )
    step.state.away.pop(command.agent_id, None)
    step.state.placement_is_due = True
    believed = {
        held.attempt.nonce: held
        for xs in step.all()
        for attempt in xs.attempts.values()
        for held in _held(step.trial(xs, attempt.key.number), command.agent_id)
    }
    seen = {nonce: held.attempt for nonce, held in believed.items()}
    acknowledged = {nonce: attempt.acknowledged for nonce, attempt in seen.items()}
    step.do(WelcomeAgent(agent_id=command.agent_id, acknowledged=acknowledged))
    told = [one for one in command.attempts if one.key.experiment_id not in step.state.set_aside]
    for finding in reconcile(seen, told, lineage=step.state.lineage):
        held = believed.get(finding.nonce)
        step.state.at_work = "" if held is None else held.ts.xs.id
        _settle(step, command.agent_id, finding, believed)
    step.state.at_work = ""
    return list(step.all())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What an agent is believed to hold: a live attempt, or the part of it on one ``node``."""

    ts: TrialStep
    node: int

    @property
    def attempt(self) -> Attempt:
        """As its agent sees it."""
        live = self.ts.live
        return parts.as_attempt(live, self.node) if live.parts else live


def _held(ts: TrialStep, agent_id: str) -> Iterator[_Held]:
    """Of the live attempt, what this agent holds. What an evaluator holds is no agent's."""
    for node, part in enumerate(ts.live.parts):
        if part.agent_id == agent_id and part.state is not PartState.ENDED:
            yield _Held(ts=ts, node=node)
    if not ts.live.parts and ts.live.agent_id == agent_id != EVALUATOR:
        yield _Held(ts=ts, node=0)


def _settle(step: Step, agent_id: str, finding: Finding, believed: dict[str, _Held]) -> None:
    match finding:
        case Adopt():
            _adopt(believed[finding.nonce], finding)
        case AwaitExit():
            _note_end(believed[finding.nonce])
        case LaunchAgain():
            held = believed[finding.nonce]
            is_to_stop = held.ts.trial.status is TrialStatus.STOPPING or held.ts.live.has_failed_part
            if held.ts.live.parts and is_to_stop:
                parts.exited(held.ts, held.node, parts.NEVER_BEGUN)
            elif held.ts.live.parts:
                orders.order_part(held.ts, held.node)
            elif is_to_stop:
                attempts.lose(held.ts)
            else:
                orders.order_launch(held.ts)
        case DeclareLost():
            _lose(believed[finding.nonce])
        case StopStray():
            step.tell(agent_id, _stop_not_believed(finding.key, finding.nonce))
        case _:  # ForgetStray
            step.tell(agent_id, Forget(nonce=finding.nonce))


def _stop_not_believed(key: AttemptKey, nonce: str) -> Stop:
    return Stop(key=key, nonce=nonce, grace_s=0.0, reason="not_believed")


def _lose(held: _Held, why: str = "") -> None:
    if held.ts.live.parts:
        parts.lose(held.ts, held.node, why=why)
    else:
        attempts.lose(held.ts, why=why)


def lose_on(ts: TrialStep, agent_id: str, *, why: str = "") -> None:
    """What this agent has of the live attempt is lost: all of it, or a part, which ends the others."""
    for held in list(_held(ts, agent_id)):
        _lose(held, why)


def _adopt(held: _Held, finding: Adopt) -> None:
    ts = held.ts
    if finding.process is not None:
        _running(held, finding.process)
    if ts.attempt is None:
        return
    if ts.live.has_failed_part or (ts.live.parts and ts.trial.status is not TrialStatus.STOPPING):
        orders.order_part(ts, held.node)
    ts.put_attempt(replace(ts.live, last_heard_at=ts.step.at))
    if ts.trial.status is TrialStatus.STOPPING:
        launching.order_wanted_stop(ts)
    devices.mind_loss(ts)
    phases.send_wanted(ts)


def disconnected(step: Step, command: AgentDisconnected) -> None:
    """Its trials run on; nothing is concluded from silence, unless it lasts: see ``away``."""
    step.state.let_node_go(command.agent_id)
    step.state.away[command.agent_id] = step.at


# ── attempts ────────────────────────────────────────────────────────────────────────────────────
def _believed(step: Step, agent_id: str, key: AttemptKey, nonce: str) -> _Held | None:
    """What the agent holds by this nonce; None where it is, or is believed to be, nobody's any more."""
    xs = step.state.experiments.get(key.experiment_id)
    if xs is None:
        return None
    if key.number not in xs.attempts:
        return None
    for held in _held(step.trial(xs, key.number), agent_id):
        if held.attempt.nonce == nonce:
            return held
    return None


def _is_set_aside(step: Step, key: AttemptKey) -> bool:
    return key.experiment_id in step.state.set_aside


def started(step: Step, command: AttemptStarted) -> ExperimentState | None:
    held = _believed(step, command.agent_id, command.key, command.nonce)
    if held is None:
        if not _is_set_aside(step, command.key):
            step.tell(command.agent_id, _stop_not_believed(command.key, command.nonce))
        return None
    _running(held, command.process)
    if held.ts.attempt is not None:
        phases.send_wanted(held.ts)  # it may have been chosen while the attempt's folder was being made
    return held.ts.xs


def prepared(step: Step, command: PartPrepared) -> ExperimentState | None:
    """One that answers for an attempt that is over, or was never its own, is told to let go of it."""
    held = _believed(step, command.agent_id, command.key, command.nonce)
    if held is not None:
        parts.prepared(held.ts, held.node, command)
        return held.ts.xs
    if not _is_set_aside(step, command.key):
        step.tell(command.agent_id, _stop_not_believed(command.key, command.nonce))
    return None


def _running(held: _Held, process: ProcessRecord) -> None:
    ts = held.ts
    if ts.live.parts:
        parts.started(ts, held.node, process)
    if held.node == 0 and ts.attempt is not None and ts.live.status is AttemptStatus.STARTING:
        at = ts.step.at
        ts.move_attempt(AttemptStatus.RUNNING, replace(ts.live, process=process, started_at=at, last_heard_at=at))


def exited(step: Step, command: AttemptExited) -> ExperimentState | None:
    """Believed once. The agent forgets an attempt only when its exit, and every report before it, is on disk."""
    held = _believed(step, command.agent_id, command.key, command.nonce)
    if held is None:
        if not _is_set_aside(step, command.key):  # else it is told again, to a service that can read the rows
            step.tell(command.agent_id, Forget(nonce=command.nonce))
        return None
    known = held.attempt.acknowledged
    if command.last_sequence > known:
        _note_end(held)
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if held.ts.live.parts:
        parts.exited(held.ts, held.node, command.exit)
    else:
        attempts.attempt_over(held.ts, AttemptStatus.EXITED, command.exit)
    step.tell(command.agent_id, Forget(nonce=command.nonce))
    return held.ts.xs


def _note_end(held: _Held) -> None:
    """Its process has ended, and some of its reports are to come: see ``is_refusing``."""
    if not held.node:
        held.ts.xs.over.add(held.ts.number)


def output_collected(step: Step, command: OutputCollected) -> None:
    """Believed of an attempt that lives, and before its exit: what another one left later stays."""
    if _is_set_aside(step, command.key):
        raise ConflictError(step.state.set_aside[command.key.experiment_id].why)
    held = _believed(step, command.agent_id, command.key, command.nonce)
    if held is None or held.node or held.ts.trial.output == command.output:
        return  # of several nodes the first one's counts
    ts, output = held.ts, command.output
    ts.put(replace(ts.trial, output=output))
    ts.journal(LineKind.OUTPUT_COLLECTED, to_plain(output))
    if output.asset:
        step.changes.named_assets.append((ts.xs.id, output.asset))


# ── reports ─────────────────────────────────────────────────────────────────────────────────────
def reported(step: Step, command: ReportsReceived) -> ExperimentState | None:
    """Take the records that are new, in order: repeated ones are harmless, a gap is asked for again.

    The experiment, where something may follow from them. What time alone brings about is looked for when it passes.
    """
    held = _believed(step, command.agent_id, command.key, command.nonce)
    last = command.first_sequence + len(command.records) - 1
    if held is None and _is_set_aside(step, command.key):
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=SET_ASIDE_RETRY_S))
        return None
    if held is None:
        # A late attempt's writes are refused; acknowledging them lets the agent come to its exit.
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
        return None
    ts, known = held.ts, held.attempt.acknowledged
    if command.first_sequence > known + 1 or last <= known:
        if not held.node:
            ts.heard()
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if held.node:  # of several nodes the first one reports; what people are to know of another is kept
        parts.put_acknowledged(ts, held.node, last)
        for record in command.records[known + 1 - command.first_sequence :]:
            if isinstance(record, NoticeRecord):
                reports.noticed(ts, record)
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
        return ts.xs
    if is_refusing(ts):
        ts.heard()
        retry_after_s = REFUSED_REPORTS_RETRY_S if ts.xs.worker.is_to_answer else UNJUDGED_REPORTS_RETRY_S
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=retry_after_s))
        return None
    fresh = command
    if command.first_sequence <= known:
        new = command.records[known + 1 - command.first_sequence :]
        fresh = replace(command, first_sequence=known + 1, records=new)
    ts.put_attempt(replaced(ts.live, acknowledged=last, last_heard_at=step.at))
    more = True
    if ts.trial.stopped_at_line is None or not ts.spec.deterministic:
        more = reports.take(ts, fresh)
    step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
    return ts.xs if more else None


def is_refusing(ts: TrialStep) -> bool:
    """Whether reports of the trial have to wait, because too many wait for whoever judges.

    Where nobody does until a person has looked, an attempt that has ended brings what it has reported all the same: its
    trial has to come to its end, and what it holds is to be given on. They stay in their rows: see ``Step.enqueue``.
    """
    xs = ts.xs
    if xs.judging_queue is None or (ts.number in xs.over and not xs.worker.is_to_answer):
        return False
    waiting = xs.queues[xs.judging_queue]
    return len(waiting.pending) >= ASSESSOR_QUEUE_LIMIT or waiting.reports >= ASSESSOR_REPORTS_LIMIT


# ── time ────────────────────────────────────────────────────────────────────────────────────────
def time_passed(step: Step, xs: ExperimentState) -> None:
    """Order again what was not confirmed, and stop what has been silent for longer than its heartbeat."""
    heartbeat = xs.experiment.spec.trial.heartbeat_s
    for attempt in list(xs.attempts.values()):
        ts = step.trial(xs, attempt.key.number)
        if attempt.parts:
            parts.time_passed(ts)
        if ts.attempt is None or attempt.agent_id not in step.state.agents:
            continue
        starting = attempt.status is AttemptStatus.STARTING
        if attempt.parts and (starting or ts.trial.status is TrialStatus.STOPPING):
            continue
        if starting or ts.trial.status is TrialStatus.STOPPING:
            grace = 0.0 if starting else ts.spec.trial.stop_grace_s
            if step.at - xs.ordered_at.get(ts.number, step.at) > grace + LAUNCH_REPEAT_S:
                launching.order_again(ts)
        elif heartbeat is not None and step.at - attempt.last_heard_at > heartbeat:
            _silent(ts, heartbeat)


def _silent(ts: TrialStep, heartbeat: float) -> None:
    if ts.trial.status is TrialStatus.RUNNING and not ts.trial.waits_for_parameters:
        why = Why(reason=TrialReason.HEARTBEAT_MISSED, message=f"no report for {heartbeat:g} s")
        launching.ask_to_stop(ts, why)
