"""What an attempt reported, record by record: it becomes rows, lines of the journal, and items that are judged."""

from __future__ import annotations

from dataclasses import replace

from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    MetricRecord,
    NoticeRecord,
    ParametersMissingRecord,
    ParametersWantedRecord,
    StopToldRecord,
)
from tuner_service.dispatcher import growth, phases, retention, rungs
from tuner_service.dispatcher.changes import MetricRow
from tuner_service.dispatcher.commands import RejectedRecord, ReportsReceived
from tuner_service.dispatcher.items import MetricsReported
from tuner_service.dispatcher.limits import (
    MESSAGE_LIMIT,
    NOTICES_LIMIT,
    REJECTED_RECORDS_LIMIT,
    SPACE_FOR_METRIC_NAMES,
)
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.step import TrialStep
from tuner_service.domain.replacing import replaced
from tuner_service.domain.trial import Attempt, Report


def take(ts: TrialStep, command: ReportsReceived) -> bool:
    """Rows change once for a run of records, not for each of them: they come in thousands.

    Whether they hold anything that the schedule looks at. Metrics of an experiment without an advisor do not: what
    follows from them follows from what the assessor answers.
    """
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
                noticed(ts, record)
            case RejectedRecord():
                _rejected(ts, record, sequence)
            case _:
                pass  # a CooperationRecord: how it is stopped is the agent's concern
    if not taken:
        progress.save()
        return True
    _write_down(ts, progress, taken)
    return is_advised or len(taken) < len(command.records)


# Its sequence, and its value of the objective where algorithms see that.
_Taken = tuple[int, MetricRecord, float | None]


def _write_down(ts: TrialStep, progress: _Progress, taken: list[_Taken]) -> None:
    """Their rows and their line, which stands before whoever judges where there is something new to judge."""
    line, judged = ts.xs.experiment.next_line, [entry for entry in taken if entry[2] is not None]
    progress.save(judged_line=line if judged else None)
    ts.step.changes.metrics.extend(_rows(ts.live, taken, line))
    payload = {"attempt": ts.live.key.attempt, "first": taken[0][0], "last": taken[-1][0]}
    ts.journal(LineKind.REPORTS, payload, judged=bool(judged))
    if not judged or ts.xs.judging_queue is None:
        return
    ts.step.enqueue(
        ts.xs,
        LineKind.REPORTS,
        MetricsReported(
            line=line,
            number=ts.number,
            reports=tuple(Report(step=r.step or 0, value=v) for _, r, v in judged if v is not None),
            sequences=tuple(sequence for sequence, _, _ in judged),
            values=tuple(record.values for _, record, _ in judged) if ts.spec.deterministic else (),
        ),
    )


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
        self._names, self._known = trial.metric_names, frozenset(trial.metric_names)
        self._final, self._final_index = trial.final, trial.final_index
        self._best, self._best_index = trial.best_value, trial.best_index
        self._last_step, self._last, self._last_metrics = trial.last_step, trial.last_value, trial.last_metrics
        self._last_index = trial.reported_index
        self._is_changed = False
        self.go_on()

    def take(self, record: MetricRecord) -> float | None:
        """The value of the objective where it is the first of its step: algorithms see that and no later one."""
        values = record.values
        if not values.keys() <= self._known:
            self._name(values)
        if record.final:
            self._final, self._final_index = {**self._final, **values}, self._phase
            self._is_changed = True
            return None
        value = values.get(self._objective.metric)
        if value is None or record.step is None or not self._seen.add(record.step):
            return None
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
                metric_names=self._names,
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
        new = [name for name in values if name not in self._known]
        new = new[: max(0, SPACE_FOR_METRIC_NAMES - len(self._names))]
        if new:
            self._names = (*self._names, *new)
            self._known = frozenset(self._names)
            self._is_changed = True


def noticed(ts: TrialStep, record: NoticeRecord) -> None:
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
