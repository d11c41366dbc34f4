"""What agents tell: that they are there, what their attempts reported, and how these ended."""

from __future__ import annotations

from dataclasses import replace

from trials.wire.attempt import AttemptKey
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from trials.wire.plain import to_plain
from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    ExitCause,
    ExitRecord,
    MetricRecord,
    NoticeRecord,
    ParametersMissingRecord,
    ParametersWantedRecord,
    ProcessRecord,
    StopToldRecord,
)
from tuner_service.dispatcher import devices, endings, exits, growth, launching, phases, retention, rungs
from tuner_service.dispatcher.changes import MetricRow
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    AttemptStarted,
    BlobReceived,
    OutputCollected,
    RejectedRecord,
    ReportsReceived,
)
from tuner_service.dispatcher.effects import WelcomeAgent
from tuner_service.dispatcher.items import MetricsReported
from tuner_service.dispatcher.limits import (
    ASSESSOR_QUEUE_LIMIT,
    ASSESSOR_REPORTS_LIMIT,
    FRESH_BLOBS_LIMIT,
    LAUNCH_REPEAT_S,
    MESSAGE_LIMIT,
    NOTICES_LIMIT,
    REFUSED_REPORTS_RETRY_S,
    REJECTED_RECORDS_LIMIT,
    SET_ASIDE_RETRY_S,
    SPACE_FOR_METRIC_NAMES,
)
from tuner_service.dispatcher.reconcile import (
    Adopt,
    AwaitExit,
    DeclareLost,
    Finding,
    LaunchAgain,
    StopStray,
    reconcile,
)
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.resources import Node
from tuner_service.domain.trial import EVALUATOR, Attempt, AttemptStatus, Report, TrialReason, TrialStatus

LOST = ExitRecord(cause=ExitCause.ATTEMPT_LOST)


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
            trouble=command.trouble,
            drained=command.drained,
        )
    step.state.placement_is_due = True
    believed = {
        attempt.nonce: step.trial(xs, attempt.key.number)
        for xs in step.all()
        for attempt in xs.attempts.values()
        if attempt.agent_id == command.agent_id and attempt.agent_id != EVALUATOR
    }
    attempts = {nonce: ts.live for nonce, ts in believed.items()}
    acknowledged = {nonce: attempt.acknowledged for nonce, attempt in attempts.items()}
    step.do(WelcomeAgent(agent_id=command.agent_id, acknowledged=acknowledged))
    told = [one for one in command.attempts if one.key.experiment_id not in step.state.set_aside]
    for finding in reconcile(attempts, told, lineage=step.state.lineage):
        _settle(step, command.agent_id, finding, believed)
    return list(step.all())


def _settle(step: Step, agent_id: str, finding: Finding, believed: dict[str, TrialStep]) -> None:
    match finding:
        case Adopt():
            _adopt(believed[finding.nonce], finding)
        case AwaitExit():
            pass
        case LaunchAgain():
            ts = believed[finding.nonce]
            if ts.trial.status is TrialStatus.STOPPING:
                lose(ts)
            else:
                launching.order_launch(ts)
        case DeclareLost():
            lose(believed[finding.nonce])
        case StopStray():
            step.tell(agent_id, _stop_not_believed(finding.key, finding.nonce))
        case _:  # ForgetStray
            step.tell(agent_id, Forget(nonce=finding.nonce))


def _stop_not_believed(key: AttemptKey, nonce: str) -> Stop:
    return Stop(key=key, nonce=nonce, grace_s=0.0, reason="not_believed")


def _adopt(ts: TrialStep, finding: Adopt) -> None:
    if finding.process is not None:
        _running(ts, finding.process)
    ts.put_attempt(replace(ts.live, last_heard_at=ts.step.at))
    if ts.trial.status is TrialStatus.STOPPING:
        launching.order_wanted_stop(ts)
    devices.mind_loss(ts)
    phases.send_wanted(ts)


def disconnected(step: Step, command: AgentDisconnected) -> None:
    """Its trials run on; nothing is concluded from silence."""
    step.state.agents.pop(command.agent_id, None)


def lose(ts: TrialStep) -> None:
    """Nobody holds its live attempt any more; the trial goes on in a new one."""
    attempt_over(ts, AttemptStatus.LOST, LOST)


# ── attempts ────────────────────────────────────────────────────────────────────────────────────
def _believed(step: Step, agent_id: str, key_experiment: str, nonce: str) -> TrialStep | None:
    """The trial whose live attempt this is. What an evaluator holds is no agent's."""
    xs = step.state.experiments.get(key_experiment)
    if xs is None:
        return None
    for attempt in xs.attempts.values():
        if attempt.nonce == nonce and attempt.agent_id == agent_id != EVALUATOR:
            return step.trial(xs, attempt.key.number)
    return None


def _is_set_aside(step: Step, key: AttemptKey) -> bool:
    return key.experiment_id in step.state.set_aside


def started(step: Step, command: AttemptStarted) -> ExperimentState | None:
    ts = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if ts is None:
        if not _is_set_aside(step, command.key):
            step.tell(command.agent_id, _stop_not_believed(command.key, command.nonce))
        return None
    _running(ts, command.process)
    phases.send_wanted(ts)  # it may have been chosen while the attempt's folder was being made
    return ts.xs


def _running(ts: TrialStep, process: ProcessRecord) -> None:
    if ts.live.status is AttemptStatus.STARTING:
        at = ts.step.at
        ts.move_attempt(AttemptStatus.RUNNING, replace(ts.live, process=process, started_at=at, last_heard_at=at))


def exited(step: Step, command: AttemptExited) -> ExperimentState | None:
    """Believed once. The agent forgets an attempt only when its exit, and every report before it, is on disk."""
    ts = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if ts is None:
        if not _is_set_aside(step, command.key):  # else it is told again, to a service that can read the rows
            step.tell(command.agent_id, Forget(nonce=command.nonce))
        return None
    attempt = ts.live
    if command.last_sequence > attempt.acknowledged:
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=attempt.acknowledged))
        return None
    attempt_over(ts, AttemptStatus.EXITED, command.exit)
    step.tell(command.agent_id, Forget(nonce=command.nonce))
    return ts.xs


def output_collected(step: Step, command: OutputCollected) -> None:
    """Believed of an attempt that lives, and before its exit: what another one left later stays."""
    if _is_set_aside(step, command.key):
        raise ConflictError(step.state.set_aside[command.key.experiment_id].why)
    ts = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if ts is None or ts.trial.output == command.output:
        return
    output = command.output
    ts.put(replace(ts.trial, output=output))
    ts.journal(LineKind.OUTPUT_COLLECTED, to_plain(output))
    if output.asset:
        step.changes.named_assets.append((ts.xs.id, output.asset))


def attempt_over(
    ts: TrialStep, status: AttemptStatus, record: ExitRecord, *, known: exits.Meaning | None = None
) -> None:
    """``known``: what its end means, where ``record`` does not say it."""
    step, attempt = ts.step, ts.live
    lost = devices.loss(step, attempt)
    devices.note_end(ts, record)
    life = exits.life_of(attempt, record, at=step.at)
    ts.move_attempt(status, replace(attempt, exit=record, started_at=life.started_at, ended_at=life.ended_at))
    step.ended[ts.xs.id, ts.number] = life.ended_at
    ts.put(replace(ts.trial, running_s=ts.trial.running_s + life.ran_s))
    payload = {
        "attempt": attempt.key.attempt,
        "cause": record.cause.value,
        "code": record.code,
        "signal": record.signal,
    }
    ts.journal(LineKind.ATTEMPT_ENDED, payload)
    endings.attempt_ended(ts, attempt, record, lost=lost, known=known)


def blob_received(step: Step, command: BlobReceived) -> None:
    """Bytes a checkpoint record will name. They stay, whatever is dropped until then."""
    step.changes.blobs[command.digest] = command.data
    fresh = step.state.fresh_blobs
    fresh[command.digest] = None
    if len(fresh) > FRESH_BLOBS_LIMIT:
        del fresh[next(iter(fresh))]


# ── reports ─────────────────────────────────────────────────────────────────────────────────────
def reported(step: Step, command: ReportsReceived) -> ExperimentState | None:
    """Take the records that are new, in order: repeated ones are harmless, a gap is asked for again."""
    ts = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    last = command.first_sequence + len(command.records) - 1
    if ts is None and _is_set_aside(step, command.key):
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=SET_ASIDE_RETRY_S))
        return None
    if ts is None:
        # A late attempt's writes are refused; acknowledging them lets the agent come to its exit.
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
        return None
    known = ts.live.acknowledged
    if command.first_sequence > known + 1 or last <= known:
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if is_judging_behind(ts.xs):
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=REFUSED_REPORTS_RETRY_S))
        return None
    fresh = replace(command, first_sequence=known + 1, records=command.records[known + 1 - command.first_sequence :])
    ts.put_attempt(replace(ts.live, acknowledged=last, last_heard_at=step.at))
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
            replace(
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
        if attempt.agent_id not in step.state.agents:
            continue
        ts = step.trial(xs, attempt.key.number)
        starting = attempt.status is AttemptStatus.STARTING
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
