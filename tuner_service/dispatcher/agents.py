"""What agents tell: that they are there, what their attempts reported, and how these ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trials.wire.attempt import AttemptKey
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from trials.wire.plain import to_plain
from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    MetricRecord,
    NoticeRecord,
    ParametersMissingRecord,
    ParametersWantedRecord,
    ProcessRecord,
    StopToldRecord,
)
from tuner_service.dispatcher import attempts, devices, growth, launching, orders, parts, phases, retention, rungs
from tuner_service.dispatcher.changes import MetricRow
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    AttemptStarted,
    OutputCollected,
    PartPrepared,
    RejectedRecord,
    ReportsReceived,
)
from tuner_service.dispatcher.effects import WelcomeAgent
from tuner_service.dispatcher.items import MetricsReported
from tuner_service.dispatcher.limits import (
    ASSESSOR_QUEUE_LIMIT,
    ASSESSOR_REPORTS_LIMIT,
    LAUNCH_REPEAT_S,
    MESSAGE_LIMIT,
    NOTICES_LIMIT,
    REFUSED_REPORTS_RETRY_S,
    REJECTED_RECORDS_LIMIT,
    SET_ASIDE_RETRY_S,
    SPACE_FOR_METRIC_NAMES,
)
from tuner_service.dispatcher.reconcile import Adopt, AwaitExit, DeclareLost, Finding, LaunchAgain, StopStray, reconcile
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.replacing import replaced
from tuner_service.domain.resources import Node, executor_of
from tuner_service.domain.trial import EVALUATOR, Attempt, AttemptStatus, PartState, Report, TrialReason, TrialStatus


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
        _settle(step, command.agent_id, finding, believed)
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
            pass
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
    found = _held(step.trial(xs, key.number), agent_id)
    return next((held for held in found if held.attempt.nonce == nonce), None)


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
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if held.ts.live.parts:
        parts.exited(held.ts, held.node, command.exit)
    else:
        attempts.attempt_over(held.ts, AttemptStatus.EXITED, command.exit)
    step.tell(command.agent_id, Forget(nonce=command.nonce))
    return held.ts.xs


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
    """Take the records that are new, in order: repeated ones are harmless, a gap is asked for again."""
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
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if held.node:  # of several nodes the first one reports; what people are to know of another is kept
        parts.put_acknowledged(ts, held.node, last)
        for record in command.records[known + 1 - command.first_sequence :]:
            if isinstance(record, NoticeRecord):
                _noticed(ts, record)
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
        return ts.xs
    if is_judging_behind(ts.xs):
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=REFUSED_REPORTS_RETRY_S))
        return None
    fresh = command
    if command.first_sequence <= known:
        new = command.records[known + 1 - command.first_sequence :]
        fresh = replace(command, first_sequence=known + 1, records=new)
    ts.put_attempt(replaced(ts.live, acknowledged=last, last_heard_at=step.at))
    if ts.trial.stopped_at_line is None or not ts.spec.deterministic:
        take(ts, fresh)
    step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
    return ts.xs


def is_judging_behind(xs: ExperimentState) -> bool:
    if xs.judging_queue is None:
        return False
    waiting = xs.queues[xs.judging_queue]
    return len(waiting.pending) >= ASSESSOR_QUEUE_LIMIT or waiting.reports >= ASSESSOR_REPORTS_LIMIT


def take(ts: TrialStep, command: ReportsReceived) -> None:
    """Rows change once for a run of records, not for each of them: they come in thousands."""
    progress = _Progress(ts)
    taken: list[_Taken] = []
    metric, is_advised = ts.spec.objective.metric, ts.spec.advisor is not None
    for sequence, record in enumerate(command.records, start=command.first_sequence):
        if isinstance(record, StopToldRecord):
            rungs.told(ts)
            continue
        if isinstance(record, MetricRecord) and record.final and ts.live.half_way is not None:
            rungs.keep_half_way(ts, record)
            continue
        if is_advised and ts.spec.deterministic and rungs.is_beyond(ts, record):
            rungs.leave_out(ts, record)
            continue
        match record:
            case MetricRecord():
                taken.append((sequence, record, progress.take(record)))
                if is_advised and rungs.is_at_rung(ts.trial, record, metric):
                    progress.save()
                    rungs.reach(ts, record.step or 0)
            case CheckpointRecord():
                progress.save()  # it may be kept or dropped by the value reported last before it
                location = command.locations.get(record.digest)
                retention.take(ts, retention.Saved(record=record, sequence=sequence, location=location))
            case CheckpointDamagedRecord():
                retention.damaged(ts, record)
            case ParametersWantedRecord():
                progress.save()  # what was reported before belongs to the parameters before
                phases.wanted(ts, record)
                progress.go_on()
            case ParametersMissingRecord():
                if fault := growth.missed(ts, record):
                    _rejected(ts, RejectedRecord(error=fault[:MESSAGE_LIMIT]), sequence)
            case NoticeRecord():
                _noticed(ts, record)
            case RejectedRecord():
                _rejected(ts, record, sequence)
            case _:
                pass  # a CooperationRecord: how it is stopped is the agent's concern
    if not taken:
        progress.save()
        return
    line, judged = ts.xs.experiment.next_line, [entry for entry in taken if entry[2] is not None]
    progress.save(judged_line=line if judged else None)
    ts.step.changes.metrics.extend(_rows(ts.live, taken, line))
    payload = {"attempt": ts.live.key.attempt, "first": taken[0][0], "last": taken[-1][0]}
    ts.journal(LineKind.REPORTS, payload, judged=bool(judged))
    if judged:
        ts.step.enqueue(
            ts.xs,
            LineKind.REPORTS,
            MetricsReported(
                line=line,
                number=ts.number,
                reports=tuple(Report(step=r.step or 0, value=v) for _, r, v in judged if v is not None),
                sequences=tuple(sequence for sequence, _, _ in judged),
                values=tuple(record.values for _, record, _ in judged),
            ),
        )


# Its sequence, and its value of the objective where algorithms see that.
_Taken = tuple[int, MetricRecord, float | None]


def _rows(attempt: Attempt, taken: list[_Taken], line: int) -> list[MetricRow]:
    key = attempt.key
    return [
        MetricRow(
            experiment_id=key.experiment_id,
            number=key.number,
            attempt=key.attempt,
            sequence=sequence,
            line=line,
            step=None if record.final else record.step,
            values=record.values,
            first=value is not None,
            objective=value,
            at=record.at,
        )
        for sequence, record, value in taken
    ]


class _Progress:
    """What a run of reports changes in the row of their trial, until it is saved."""

    def __init__(self, ts: TrialStep) -> None:
        self._ts = ts
        self._objective = ts.spec.objective
        self._seen = ts.xs.seen_steps[ts.number]
        trial = ts.trial
        self._names, self._final, self._final_index = dict.fromkeys(trial.metric_names), trial.final, trial.final_index
        self._best, self._best_index = trial.best_value, trial.best_index
        self._last_step, self._last, self._last_metrics = trial.last_step, trial.last_value, trial.last_metrics
        self._last_index = trial.reported_index
        self._is_changed = False
        self.go_on()

    def take(self, record: MetricRecord) -> float | None:
        """The value of the objective where it is the first of its step: algorithms see that and no later one."""
        values = record.values
        if not values.keys() <= self._names.keys():
            self._name(values)
        if record.final:
            self._final, self._final_index = {**self._final, **values}, self._phase
            self._is_changed = True
            return None
        value = values.get(self._objective.metric)
        if value is None or record.step is None or record.step in self._seen:
            return None
        self._seen.add(record.step)
        self._last_step, self._last, self._last_metrics, self._last_index = record.step, value, values, self._phase
        self._is_changed = True
        if self._objective.better(value, self._best):
            self._best, self._best_index = value, self._phase
        return value

    def save(self, *, judged_line: int | None = None) -> None:
        """``judged_line``: the journal line with reports that algorithms see, where there are some."""
        if not self._is_changed and judged_line is None:
            return
        trial = self._ts.trial
        self._ts.put(
            replaced(
                trial,
                metric_names=tuple(self._names),
                final=self._final,
                final_index=self._final_index,
                best_value=self._best,
                best_index=self._best_index,
                last_step=self._last_step,
                last_value=self._last,
                last_metrics=self._last_metrics,
                reported_index=self._last_index,
                reports_line=trial.reports_line if judged_line is None else judged_line,
                deaths_without_progress=trial.deaths_without_progress if judged_line is None else 0,
            )
        )
        self._is_changed = False

    def go_on(self) -> None:
        """With the parameters that were asked for just now, where they are known."""
        trial = self._ts.trial
        self._phase = min(trial.wanted_index, len(trial.further_parameters))

    def _name(self, values: dict[str, float]) -> None:
        before = len(self._names)
        self._names = dict.fromkeys([*self._names, *values][:SPACE_FOR_METRIC_NAMES])
        self._is_changed = self._is_changed or len(self._names) != before


def _noticed(ts: TrialStep, record: NoticeRecord) -> None:
    """People see it with the attempt; algorithms never do."""
    attempt, before = ts.live, ts.live.message
    if before.count("\n") + bool(before) >= NOTICES_LIMIT:
        return
    said = " ".join(f"{record.code}: {record.message}".split())[:MESSAGE_LIMIT]
    ts.put_attempt(replace(attempt, message=f"{before}\n{said}" if before else said))
    ts.journal(LineKind.NOTICED, {"attempt": attempt.key.attempt, "notice": said})


def _rejected(ts: TrialStep, record: RejectedRecord, sequence: int) -> None:
    rejected, number = ts.xs.rejected_records, ts.number
    count = rejected[number] = rejected.get(number, 0) + 1
    if count <= REJECTED_RECORDS_LIMIT:
        payload = {"attempt": ts.live.key.attempt, "sequence": sequence, "error": record.error}
        ts.journal(LineKind.RECORD_REJECTED, payload)


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
