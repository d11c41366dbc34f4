"""What agents tell: that they are there, what their attempts reported, and how these ended."""

from __future__ import annotations

from dataclasses import replace

from trials.wire.attempt import AttemptKey
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    ExitRecord,
    MetricRecord,
    NoticeRecord,
    ParametersWantedRecord,
    StopToldRecord,
)
from tuner_service.dispatcher import devices, endings, exits, launching, phases, retention, rungs
from tuner_service.dispatcher.changes import MetricRow
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AgentDisconnected,
    AttemptExited,
    AttemptStarted,
    BlobReceived,
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
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.resources import Node
from tuner_service.domain.trial import Attempt, AttemptStatus, Report, TrialReason, TrialStatus

LOST = ExitRecord(cause="attempt_lost")


# ── agents come and go ──────────────────────────────────────────────────────────────────────────
def connected(step: Step, command: AgentConnected) -> list[ExperimentState]:
    """Settle what the agent observes with what the rows say; the experiments that may now go on."""
    step.state.agents[command.agent_id] = Node(
        agent_id=command.agent_id, cpus=command.cpus, memory_bytes=command.memory_bytes, devices=command.devices
    )
    step.state.placement_is_due = True
    believed = {
        attempt.nonce: (xs, attempt)
        for xs in step.all()
        for attempt in xs.attempts.values()
        if attempt.agent_id == command.agent_id
    }
    step.do(WelcomeAgent(agent_id=command.agent_id, acknowledged={n: a.acknowledged for n, (_, a) in believed.items()}))
    findings = reconcile({n: a for n, (_, a) in believed.items()}, command.attempts, lineage=step.state.lineage)
    for finding in findings:
        _settle(step, command.agent_id, finding, believed)
    return list(step.all())


def _settle(step: Step, agent_id: str, finding: Finding, believed: dict[str, tuple[ExperimentState, Attempt]]) -> None:
    match finding:
        case Adopt():
            xs, attempt = believed[finding.nonce]
            _adopt(step, xs, attempt, finding)
        case AwaitExit():
            pass
        case LaunchAgain():
            xs, attempt = believed[finding.nonce]
            if xs.trials[attempt.key.number].status is TrialStatus.STOPPING:
                lose(step, xs, attempt)
            else:
                launching.order_launch(step, xs, attempt)
        case DeclareLost():
            lose(step, *believed[finding.nonce])
        case StopStray():
            step.tell(agent_id, _stop_not_believed(finding.key, finding.nonce))
        case _:  # ForgetStray
            step.tell(agent_id, Forget(nonce=finding.nonce))


def _stop_not_believed(key: AttemptKey, nonce: str) -> Stop:
    return Stop(key=key, nonce=nonce, grace_s=0.0, reason="not_believed")


def _adopt(step: Step, xs: ExperimentState, attempt: Attempt, finding: Adopt) -> None:
    number = attempt.key.number
    if finding.process is not None:
        _running(step, xs, number, process=finding.process)
    step.put_attempt(xs, number, last_heard_at=step.at)
    trial = xs.trials[number]
    if trial.status is TrialStatus.STOPPING:
        launching.order_wanted_stop(step, xs, xs.attempts[number])
    devices.mind_loss(step, xs, attempt)
    phases.send_wanted(step, xs, attempt)


def disconnected(step: Step, command: AgentDisconnected) -> None:
    """Its trials run on; nothing is concluded from silence."""
    step.state.agents.pop(command.agent_id, None)


def lose(step: Step, xs: ExperimentState, attempt: Attempt) -> None:
    """Nobody holds this attempt any more; its trial goes on in a new one."""
    _attempt_over(step, xs, attempt, AttemptStatus.LOST, LOST)


# ── attempts ────────────────────────────────────────────────────────────────────────────────────
def _believed(step: Step, agent_id: str, key_experiment: str, nonce: str) -> tuple[ExperimentState, Attempt] | None:
    xs = step.state.experiments.get(key_experiment)
    if xs is None:
        return None
    for attempt in xs.attempts.values():
        if attempt.nonce == nonce and attempt.agent_id == agent_id:
            return xs, attempt
    return None


def started(step: Step, command: AttemptStarted) -> ExperimentState | None:
    found = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if found is None:
        step.tell(command.agent_id, _stop_not_believed(command.key, command.nonce))
        return None
    xs, attempt = found
    _running(step, xs, attempt.key.number, process=command.process)
    phases.send_wanted(step, xs, attempt)  # it may have been chosen while the attempt's folder was being made
    return xs


def _running(step: Step, xs: ExperimentState, number: int, *, process: object) -> None:
    if xs.attempts[number].status is AttemptStatus.STARTING:
        step.move_attempt(xs, number, AttemptStatus.RUNNING, process=process, started_at=step.at, last_heard_at=step.at)


def exited(step: Step, command: AttemptExited) -> ExperimentState | None:
    """Believed once. The agent forgets an attempt only when its exit, and every report before it, is on disk."""
    found = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if found is None:
        step.tell(command.agent_id, Forget(nonce=command.nonce))
        return None
    xs, attempt = found
    if command.last_sequence > attempt.acknowledged:
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=attempt.acknowledged))
        return None
    _attempt_over(step, xs, attempt, AttemptStatus.EXITED, command.exit)
    step.tell(command.agent_id, Forget(nonce=command.nonce))
    return xs


def _attempt_over(step: Step, xs: ExperimentState, attempt: Attempt, status: AttemptStatus, record: ExitRecord) -> None:
    number = attempt.key.number
    lost = devices.loss(step, attempt)
    devices.note_end(step, xs, attempt, record)
    life = exits.life_of(attempt, record, at=step.at)
    step.move_attempt(xs, number, status, exit=record, started_at=life.started_at, ended_at=life.ended_at)
    step.ended[xs.id, number] = life.ended_at
    step.put_trial(xs, number, running_s=xs.trials[number].running_s + life.ran_s)
    payload = {"number": number, "attempt": attempt.key.attempt, "cause": record.cause, "code": record.code}
    step.journal(xs, LineKind.ATTEMPT_ENDED, payload | {"signal": record.signal})
    endings.attempt_ended(step, xs, attempt, record, lost=lost)


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
    found = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    last = command.first_sequence + len(command.records) - 1
    if found is None:
        # A late attempt's writes are refused; acknowledging them lets the agent come to its exit.
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
        return None
    xs, attempt = found
    known = attempt.acknowledged
    if command.first_sequence > known + 1 or last <= known:
        step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=known))
        return None
    if _is_judging_behind(xs):
        step.tell(command.agent_id, Busy(nonce=command.nonce, retry_after_s=REFUSED_REPORTS_RETRY_S))
        return None
    fresh = replace(command, first_sequence=known + 1, records=command.records[known + 1 - command.first_sequence :])
    number = attempt.key.number
    step.put_attempt(xs, number, acknowledged=last, last_heard_at=step.at)
    if xs.trials[number].stopped_at_line is None or not xs.experiment.spec.deterministic:
        _take(step, xs, attempt, fresh)
    step.tell(command.agent_id, Acknowledge(nonce=command.nonce, sequence=last))
    return xs


def _is_judging_behind(xs: ExperimentState) -> bool:
    if xs.judging_queue is None:
        return False
    waiting = xs.queues[xs.judging_queue]
    return len(waiting.pending) >= ASSESSOR_QUEUE_LIMIT or waiting.reports >= ASSESSOR_REPORTS_LIMIT


def _take(step: Step, xs: ExperimentState, attempt: Attempt, command: ReportsReceived) -> None:
    """Rows change once for a run of records, not for each of them: they come in thousands."""
    number, progress = attempt.key.number, _Progress(xs, attempt.key.number)
    taken: list[_Taken] = []
    spec = xs.experiment.spec
    metric, is_advised, deterministic = spec.objective.metric, spec.advisor is not None, spec.deterministic
    for sequence, record in enumerate(command.records, start=command.first_sequence):
        if isinstance(record, StopToldRecord):
            rungs.told(step, xs, number)
            continue
        if isinstance(record, MetricRecord) and record.final and xs.attempts[number].half_way is not None:
            rungs.keep_half_way(step, xs, number, record)
            continue
        if is_advised and deterministic and rungs.is_beyond(xs.trials[number], record, xs.attempts[number]):
            rungs.leave_out(step, xs, number, record)
            continue
        match record:
            case MetricRecord():
                taken.append((sequence, record, progress.take(record)))
                if is_advised and rungs.is_at_rung(xs.trials[number], record, metric):
                    progress.save(step)
                    rungs.reach(step, xs, number, record.step or 0)
            case CheckpointRecord():
                progress.save(step)  # it may be kept or dropped by the value reported last before it
                location = command.locations.get(record.digest)
                retention.take(step, xs, attempt, retention.Saved(record=record, sequence=sequence, location=location))
            case CheckpointDamagedRecord():
                retention.damaged(step, xs, attempt, record)
            case ParametersWantedRecord():
                progress.save(step)  # what was reported before belongs to the parameters before
                phases.wanted(step, xs, attempt, record)
                progress.go_on()
            case NoticeRecord():
                _noticed(step, xs, attempt, record)
            case RejectedRecord():
                _rejected(step, xs, attempt, record, sequence)
            case _:
                pass  # a CooperationRecord: how it is stopped is the agent's concern
    progress.save(step)
    if not taken:
        return
    line, judged = xs.experiment.next_line, [entry for entry in taken if entry[2] is not None]
    step.changes.metrics.extend(_rows(attempt, taken, line))
    payload = {"number": number, "attempt": attempt.key.attempt, "first": taken[0][0], "last": taken[-1][0]}
    step.journal(xs, LineKind.REPORTS, payload, judged=bool(judged))
    if judged:
        step.put_trial(xs, number, reports_line=line, deaths_without_progress=0)
        step.enqueue(
            xs,
            LineKind.REPORTS,
            MetricsReported(
                line=line,
                number=number,
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

    def __init__(self, xs: ExperimentState, number: int) -> None:
        self._xs, self._number = xs, number
        self._objective = xs.experiment.spec.objective
        self._seen = xs.seen_steps[number]
        trial = xs.trials[number]
        self._names, self._final, self._best = dict.fromkeys(trial.metric_names), trial.final, trial.best_value
        self._last: tuple[MetricRecord, float] | None = None
        self._phase = min(trial.wanted_index, len(trial.further_parameters))
        self._fields: dict[str, object] = {}

    def take(self, record: MetricRecord) -> float | None:
        """The value of the objective where it is the first of its step: algorithms see that and no later one."""
        values = record.values
        if not values.keys() <= self._names.keys():
            self._name(values)
        if record.final:
            self._final = self._fields["final"] = {**self._final, **values}
            self._fields["final_index"] = self._phase
            return None
        value = values.get(self._objective.metric)
        if value is None or record.step is None or record.step in self._seen:
            return None
        self._seen.add(record.step)
        self._last = (record, value)
        if self._objective.better(value, self._best):
            self._best = self._fields["best_value"] = value
            self._fields["best_index"] = self._phase
        return value

    def save(self, step: Step) -> None:
        if self._last is not None:
            record, value = self._last
            self._fields |= {"last_step": record.step, "last_value": value, "last_metrics": record.values}
            self._fields["reported_index"] = self._phase
        if self._fields:
            step.put_trial(self._xs, self._number, **self._fields)
        self._last, self._fields = None, {}

    def go_on(self) -> None:
        """With the parameters that were asked for just now, where they are known."""
        trial = self._xs.trials[self._number]
        self._phase = min(trial.wanted_index, len(trial.further_parameters))

    def _name(self, values: dict[str, float]) -> None:
        before = len(self._names)
        self._names = dict.fromkeys([*self._names, *values][:SPACE_FOR_METRIC_NAMES])
        if len(self._names) != before:
            self._fields["metric_names"] = tuple(self._names)


def _noticed(step: Step, xs: ExperimentState, attempt: Attempt, record: NoticeRecord) -> None:
    """People see it with the attempt; algorithms never do."""
    number, before = attempt.key.number, xs.attempts[attempt.key.number].message
    if before.count("\n") + bool(before) >= NOTICES_LIMIT:
        return
    said = " ".join(f"{record.code}: {record.message}".split())[:MESSAGE_LIMIT]
    step.put_attempt(xs, number, message=f"{before}\n{said}" if before else said)
    step.journal(xs, LineKind.NOTICED, {"number": number, "attempt": attempt.key.attempt, "notice": said})


def _rejected(step: Step, xs: ExperimentState, attempt: Attempt, record: RejectedRecord, sequence: int) -> None:
    number = attempt.key.number
    count = xs.rejected_records[number] = xs.rejected_records.get(number, 0) + 1
    if count <= REJECTED_RECORDS_LIMIT:
        payload = {"number": number, "attempt": attempt.key.attempt, "sequence": sequence, "error": record.error}
        step.journal(xs, LineKind.RECORD_REJECTED, payload)


# ── time ────────────────────────────────────────────────────────────────────────────────────────
def time_passed(step: Step, xs: ExperimentState) -> None:
    """Order again what was not confirmed, and stop what has been silent for longer than its heartbeat."""
    heartbeat = xs.experiment.spec.trial.heartbeat_s
    for attempt in list(xs.attempts.values()):
        number = attempt.key.number
        if attempt.agent_id not in step.state.agents:
            continue
        starting = attempt.status is AttemptStatus.STARTING
        if starting or xs.trials[number].status is TrialStatus.STOPPING:
            grace = 0.0 if starting else xs.experiment.spec.trial.stop_grace_s
            if step.at - xs.ordered_at.get(number, step.at) > grace + LAUNCH_REPEAT_S:
                launching.order_again(step, xs, attempt)
        elif heartbeat is not None and step.at - attempt.last_heard_at > heartbeat:
            _silent(step, xs, attempt, heartbeat)


def _silent(step: Step, xs: ExperimentState, attempt: Attempt, heartbeat: float) -> None:
    number = attempt.key.number
    trial = xs.trials[number]
    if trial.status is TrialStatus.RUNNING and not trial.waits_for_parameters:
        why = Why(reason=TrialReason.HEARTBEAT_MISSED, message=f"no report for {heartbeat:g} s")
        step.move_trial(xs, number, TrialStatus.STOPPING, why)
        launching.order_stop(step, xs, attempt, why.reason.value)
