"""What agents tell: that they are there, what their attempts reported, and how these ended."""

from __future__ import annotations

from dataclasses import replace

from trials.protocol import CHECKPOINT_INLINE_BYTES, CheckpointRecord, ExitRecord, MetricRecord
from tuner_service.dispatcher import endings, launching
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
from tuner_service.dispatcher.effects import (
    AcknowledgeReports,
    DeleteCheckpointFile,
    ForgetAttempt,
    RefuseReports,
    StopAttempt,
    WelcomeAgent,
)
from tuner_service.dispatcher.items import MetricsReported, Queue
from tuner_service.dispatcher.limits import (
    ASSESSOR_QUEUE_LIMIT,
    FRESH_BLOBS_LIMIT,
    LAUNCH_REPEAT_S,
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
from tuner_service.dispatcher.state import AgentState, ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.trial import Attempt, AttemptStatus, Checkpoint, Report, TrialReason, TrialStatus

LOST = ExitRecord(cause="attempt_lost")


# ── agents come and go ──────────────────────────────────────────────────────────────────────────
def connected(step: Step, command: AgentConnected) -> list[ExperimentState]:
    """Settle what the agent observes with what the rows say; the experiments that may now go on."""
    step.state.agents[command.agent_id] = AgentState(
        agent_id=command.agent_id, cpus=command.cpus, memory_bytes=command.memory_bytes
    )
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
            step.do(
                StopAttempt(agent_id=agent_id, key=finding.key, nonce=finding.nonce, grace_s=0.0, reason="not_believed")
            )
        case _:  # ForgetStray
            step.do(ForgetAttempt(agent_id=agent_id, nonce=finding.nonce))


def _adopt(step: Step, xs: ExperimentState, attempt: Attempt, finding: Adopt) -> None:
    number = attempt.key.number
    if finding.process is not None:
        _running(step, xs, number, process=finding.process)
    step.put_attempt(xs, number, last_heard_at=step.at)
    trial = xs.trials[number]
    if trial.status is TrialStatus.STOPPING:
        launching.order_stop(step, xs, attempt, trial.reason.value)


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
        step.do(
            StopAttempt(
                agent_id=command.agent_id, key=command.key, nonce=command.nonce, grace_s=0.0, reason="not_believed"
            )
        )
        return None
    xs, attempt = found
    _running(step, xs, attempt.key.number, process=command.process)
    return xs


def _running(step: Step, xs: ExperimentState, number: int, *, process: object) -> None:
    if xs.attempts[number].status is AttemptStatus.STARTING:
        step.move_attempt(xs, number, AttemptStatus.RUNNING, process=process, started_at=step.at, last_heard_at=step.at)


def exited(step: Step, command: AttemptExited) -> ExperimentState | None:
    """Believed once. The agent forgets an attempt only when its exit, and every report before it, is on disk."""
    found = _believed(step, command.agent_id, command.key.experiment_id, command.nonce)
    if found is None:
        step.do(ForgetAttempt(agent_id=command.agent_id, nonce=command.nonce))
        return None
    xs, attempt = found
    if command.last_sequence > attempt.acknowledged:
        step.do(AcknowledgeReports(agent_id=command.agent_id, nonce=command.nonce, sequence=attempt.acknowledged))
        return None
    _attempt_over(step, xs, attempt, AttemptStatus.EXITED, command.exit)
    step.do(ForgetAttempt(agent_id=command.agent_id, nonce=command.nonce))
    return xs


def _attempt_over(step: Step, xs: ExperimentState, attempt: Attempt, status: AttemptStatus, record: ExitRecord) -> None:
    number = attempt.key.number
    step.move_attempt(xs, number, status, exit=record, ended_at=step.at)
    trial = xs.trials[number]
    begun = attempt.started_at if attempt.started_at is not None else step.at
    step.put_trial(xs, number, running_s=trial.running_s + max(0.0, step.at - begun))
    payload = {"number": number, "attempt": attempt.key.attempt, "cause": record.cause, "code": record.code}
    step.journal(xs, LineKind.ATTEMPT_ENDED, payload | {"signal": record.signal})
    endings.attempt_ended(step, xs, number, record)


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
        step.do(AcknowledgeReports(agent_id=command.agent_id, nonce=command.nonce, sequence=last))
        return None
    xs, attempt = found
    known = attempt.acknowledged
    if command.first_sequence > known + 1 or last <= known:
        step.do(AcknowledgeReports(agent_id=command.agent_id, nonce=command.nonce, sequence=known))
        return None
    if len(xs.queues[Queue.ASSESSOR].pending) >= ASSESSOR_QUEUE_LIMIT:
        step.do(RefuseReports(agent_id=command.agent_id, nonce=command.nonce, retry_after_s=REFUSED_REPORTS_RETRY_S))
        return None
    fresh = replace(command, first_sequence=known + 1, records=command.records[known + 1 - command.first_sequence :])
    number = attempt.key.number
    step.put_attempt(xs, number, acknowledged=last, last_heard_at=step.at)
    if xs.trials[number].stopped_at_line is None or not xs.experiment.spec.deterministic:
        _take(step, xs, attempt, fresh)
    step.do(AcknowledgeReports(agent_id=command.agent_id, nonce=command.nonce, sequence=last))
    return xs


def _take(step: Step, xs: ExperimentState, attempt: Attempt, command: ReportsReceived) -> None:
    number, line = attempt.key.number, xs.experiment.next_line
    rows: list[MetricRow] = []
    for sequence, record in enumerate(command.records, start=command.first_sequence):
        match record:
            case MetricRecord():
                rows.append(_metric(step, xs, attempt, record, place=(line, sequence)))
            case CheckpointRecord():
                _checkpoint(step, xs, attempt, record, sequence)
            case RejectedRecord():
                _rejected(step, xs, attempt, record, sequence)
            case _:
                pass  # a CooperationRecord: how it is stopped is the agent's concern
    if not rows:
        return
    line = xs.experiment.next_line  # rejected records have lines of their own
    rows = [replace(row, line=line) for row in rows]
    step.changes.metrics.extend(rows)
    judged = [row for row in rows if row.first]
    payload = {"number": number, "attempt": attempt.key.attempt, "first": rows[0].sequence, "last": rows[-1].sequence}
    step.journal(xs, LineKind.REPORTS, payload, judged=bool(judged))
    if judged:
        step.put_trial(xs, number, reports_line=line, deaths_without_progress=0)
        step.enqueue(
            xs,
            LineKind.REPORTS,
            MetricsReported(
                line=line,
                number=number,
                reports=tuple(Report(step=r.step or 0, value=_objective(r)) for r in judged),
                sequences=tuple(r.sequence for r in judged),
                values=tuple(r.values for r in judged),
            ),
        )


def _objective(row: MetricRow) -> float:
    assert row.objective is not None  # noqa: S101  # a first row has the objective
    return row.objective


def _metric(
    step: Step, xs: ExperimentState, attempt: Attempt, record: MetricRecord, *, place: tuple[int, int]
) -> MetricRow:
    """The row of one report. Algorithms see the first value of a (trial, metric, step) and no later one."""
    number, objective = attempt.key.number, xs.experiment.spec.objective
    trial, value = xs.trials[number], record.values.get(objective.metric)
    names = tuple(dict.fromkeys((*trial.metric_names, *record.values)))[:SPACE_FOR_METRIC_NAMES]
    first = not record.final and value is not None and record.step not in xs.seen_steps[number]
    fields: dict[str, object] = {"metric_names": names} if names != trial.metric_names else {}
    if record.final:
        fields["final"] = {**trial.final, **record.values}
    elif first and record.step is not None and value is not None:
        xs.seen_steps[number].add(record.step)
        fields |= {"last_step": record.step, "last_value": value, "last_metrics": record.values}
        if objective.better(value, trial.best_value):
            fields["best_value"] = value
    if fields:
        step.put_trial(xs, number, **fields)
    line, sequence = place
    return MetricRow(
        experiment_id=xs.id,
        number=number,
        attempt=attempt.key.attempt,
        sequence=sequence,
        line=line,
        step=None if record.final else record.step,
        values=record.values,
        first=first,
        objective=value if first else None,
        at=record.at,
    )


def _rejected(step: Step, xs: ExperimentState, attempt: Attempt, record: RejectedRecord, sequence: int) -> None:
    number = attempt.key.number
    count = xs.rejected_records[number] = xs.rejected_records.get(number, 0) + 1
    if count <= REJECTED_RECORDS_LIMIT:
        payload = {"number": number, "attempt": attempt.key.attempt, "sequence": sequence, "error": record.error}
        step.journal(xs, LineKind.RECORD_REJECTED, payload)


def _checkpoint(step: Step, xs: ExperimentState, attempt: Attempt, record: CheckpointRecord, sequence: int) -> None:
    """Keep the newest and the best, as the experiment says; drop the others, file and bytes."""
    number, template = attempt.key.number, xs.experiment.spec.trial
    kept = xs.checkpoints.setdefault(number, [])
    checkpoint = Checkpoint(
        experiment_id=xs.id,
        number=number,
        attempt=attempt.key.attempt,
        nonce=attempt.nonce,
        sequence=sequence,
        step=record.step,
        name=record.name,
        digest=record.digest,
        size=record.size,
        inline=record.size <= CHECKPOINT_INLINE_BYTES,
        value=xs.trials[number].last_value,
        at=record.at,
    )
    kept.append(checkpoint)
    step.changes.checkpoints.append(checkpoint)
    step.state.fresh_blobs.pop(record.digest, None)
    wanted = {id(c) for c in kept[-max(1, template.keep_last) :]}
    wanted |= {id(c) for c in _best(xs, kept)[: template.keep_best]}
    for dropped in [c for c in kept if id(c) not in wanted]:
        kept.remove(dropped)
        step.changes.dropped_checkpoints.append(dropped)
        # Equal content has one blob: the agent may just have been told that it is stored.
        step.changes.fresh_blobs |= {dropped.digest} & step.state.fresh_blobs.keys()
        step.do(DeleteCheckpointFile(agent_id=attempt.agent_id, nonce=dropped.nonce, name=dropped.name))


def _best(xs: ExperimentState, kept: list[Checkpoint]) -> list[Checkpoint]:
    better = xs.experiment.spec.objective.better
    ordered: list[Checkpoint] = []
    for checkpoint in kept:
        if checkpoint.value is not None:
            place = next((i for i, c in enumerate(ordered) if better(checkpoint.value, c.value)), len(ordered))
            ordered.insert(place, checkpoint)
    return ordered


# ── time ────────────────────────────────────────────────────────────────────────────────────────
def time_passed(step: Step, xs: ExperimentState) -> None:
    """Order again what was not confirmed, and stop what has been silent for longer than its heartbeat."""
    heartbeat = xs.experiment.spec.trial.heartbeat_s
    for attempt in list(xs.attempts.values()):
        number = attempt.key.number
        if attempt.agent_id not in step.state.agents:
            continue
        if attempt.status is AttemptStatus.STARTING:
            if step.at - xs.launched_at.get(number, step.at) > LAUNCH_REPEAT_S:
                launching.order_again(step, xs, attempt)
        elif heartbeat is not None and step.at - attempt.last_heard_at > heartbeat:
            _silent(step, xs, attempt, heartbeat)


def _silent(step: Step, xs: ExperimentState, attempt: Attempt, heartbeat: float) -> None:
    number = attempt.key.number
    if xs.trials[number].status is TrialStatus.RUNNING:
        why = Why(reason=TrialReason.HEARTBEAT_MISSED, message=f"no report for {heartbeat:g} s")
        step.move_trial(xs, number, TrialStatus.STOPPING, why)
        launching.order_stop(step, xs, attempt, why.reason.value)
