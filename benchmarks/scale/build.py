"""An experiment with many finished trials, written as the service would have written it, but at once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trials.wire.attempt import AttemptKey
from trials.wire.plain import to_plain
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.changes import Changes, JournalLine, MetricRow, StoredSnapshot
from tuner_service.dispatcher.items import (
    AssessorItem,
    MetricsReported,
    Queue,
    SuggestionRequested,
    TrialEnded,
    TunerItem,
)
from tuner_service.domain.experiment import (
    AlgorithmSpec,
    Budget,
    Experiment,
    ExperimentReason,
    ExperimentSpec,
    ExperimentStatus,
    Objective,
    TrialTemplate,
)
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Attempt, AttemptStatus, Report, Trial, TrialOutcome, TrialReason, TrialStatus
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore
from tuner_service.workers.building import build_assessor_fold, build_tuner_fold
from tuner_service.workers.messages import Initialize
from tuner_service.workers.snapshots import makers, sealed

EXPERIMENT_ID = "scale"
TRIALS_AT_ONCE = 200
SNAPSHOT_AGE_TRIALS = 30  # the snapshots were taken so many trials before the end: some thousand lines
SPACE = {f"x{i}": {"type": "float", "low": 0, "high": 1} for i in range(8)}
SCRIPT = "import time; print(time.time(), flush=True); time.sleep(600)"


@dataclass(frozen=True, kw_only=True)
class Size:
    """A journal line for every report: as from trials that report less often than every few milliseconds."""

    trials: int = 10_000
    reports: int = 100


def build(database: str | Path, size: Size, *, snapshots: bool = True) -> None:
    clock = SystemClock()
    store = open_store(database, clock)
    try:
        _Builder(store, clock.now(), size).write(snapshots=snapshots)
    finally:
        store.close()


class _Builder:
    def __init__(self, store: SqlStore, at: float, size: Size) -> None:
        self._store, self._at, self._size = store, at - 86_400.0, size
        spec = ExperimentSpec(
            name="scale",
            seed=1,
            objective=Objective(metric="loss"),
            search_space=SPACE,
            tuner=AlgorithmSpec(name="random"),
            assessor=AlgorithmSpec(name="median_stop"),
            budget=Budget(trials=2 * size.trials, parallel=1),
            trial=TrialTemplate(command=("python", "-c", SCRIPT), stop_grace_s=1.0),
        )
        self._experiment = Experiment(
            id=EXPERIMENT_ID,
            spec=spec,
            status=ExperimentStatus.STOPPED,
            reason=ExperimentReason.REQUESTED,
            created_at=self._at,
            started_at=self._at,
            ended_at=self._at,
        )
        command = Initialize(
            experiment_id=EXPERIMENT_ID,
            search_space=SPACE,
            objective=spec.objective,
            seed=spec.seed,
            tuner=spec.tuner,
            assessor=spec.assessor,
        )
        assert spec.assessor is not None
        self._tuner, self._assessor = build_tuner_fold(command), build_assessor_fold(command, spec.assessor)
        self._line = 0
        self._changes = Changes()

    def write(self, *, snapshots: bool) -> None:
        self._changes.experiments[EXPERIMENT_ID] = self._experiment
        for number in range(1, self._size.trials + 1):
            self._trial(number)
            if snapshots and number == max(1, self._size.trials - SNAPSHOT_AGE_TRIALS):
                self._snapshot()
            if number % TRIALS_AT_ONCE == 0:
                self._save()
        self._changes.experiments[EXPERIMENT_ID] = replace(
            self._experiment,
            counts={TrialStatus.SUCCEEDED.value: self._size.trials},
            next_line=self._line + 1,
            next_number=self._size.trials + 1,
            tuner_cursor=self._line,
            assessor_cursor=self._line,
            best_number=1,
            best_value=_loss(1, self._size.reports - 1),
        )
        self._save()

    def _save(self) -> None:
        self._store.commit(self._changes)
        self._changes = Changes()

    def _journal(self, kind: str, payload: dict[str, object], *queues: Queue) -> int:
        self._line += 1
        line = JournalLine(
            experiment_id=EXPERIMENT_ID, line=self._line, at=self._at, kind=kind, payload=payload, queues=queues
        )
        self._changes.journal.append(line)
        return self._line

    def _trial(self, number: int) -> None:
        requested = self._journal("suggestion_requested", {"number": number}, Queue.TUNER)
        generator = suggestion_generator(1, number)
        parameters = {name: generator.random() for name in SPACE}
        self._journal("attempt_launched", {"number": number, "attempt": 1})
        reported = list(self._reports(number))
        self._journal("attempt_ended", {"number": number, "attempt": 1, "cause": "exited", "code": 0, "signal": None})
        last = _loss(number, self._size.reports - 1)
        outcome = TrialOutcome(
            number=number,
            status=TrialStatus.SUCCEEDED,
            parameters=parameters,
            value=last,
            step=self._size.reports - 1,
        )
        told = self._journal("trial_ended", {"outcome": to_plain(outcome)}, Queue.TUNER, Queue.ASSESSOR)
        trial = Trial(
            experiment_id=EXPERIMENT_ID,
            number=number,
            status=TrialStatus.SUCCEEDED,
            parameters=parameters,
            reason=TrialReason.FINAL_METRIC,
            decided_line=requested,
            told_line=told,
            final={"loss": last},
            value=last,
            last_step=self._size.reports - 1,
            last_value=last,
            last_metrics={"loss": last},
            best_value=last,
            reports_line=reported[-1].line,
            attempts=1,
            metric_names=("loss",),
            created_at=self._at,
            started_at=self._at,
            ended_at=self._at,
            running_s=60.0,
        )
        self._changes.trials[EXPERIMENT_ID, number] = trial
        self._attempt(number)
        self._fold(
            [SuggestionRequested(line=requested, number=number, recorded=parameters)],
            [*reported, TrialEnded(line=told, outcome=outcome)],
        )

    def _reports(self, number: int) -> Iterator[MetricsReported]:
        for step in range(self._size.reports):
            value, sequence = _loss(number, step), step + 1
            payload: dict[str, object] = {"number": number, "attempt": 1, "first": sequence, "last": sequence}
            line = self._journal("reports", payload, Queue.ASSESSOR)
            row = MetricRow(
                experiment_id=EXPERIMENT_ID,
                number=number,
                attempt=1,
                sequence=sequence,
                line=line,
                step=step,
                values={"loss": value},
                first=True,
                objective=value,
                at=self._at,
            )
            self._changes.metrics.append(row)
            yield MetricsReported(
                line=line, number=number, reports=(Report(step=step, value=value),), sequences=(sequence,)
            )

    def _attempt(self, number: int) -> None:
        attempt = Attempt(
            key=AttemptKey(experiment_id=EXPERIMENT_ID, number=number, attempt=1),
            nonce=f"built-{number}",
            lineage=self._store.lineage,
            agent_id="built",
            status=AttemptStatus.EXITED,
            acknowledged=self._size.reports,
            exit=ExitRecord(cause=ExitCause.EXITED, code=0),
            created_at=self._at,
            started_at=self._at,
            ended_at=self._at,
            last_heard_at=self._at,
        )
        self._changes.attempts[attempt.key] = attempt

    def _fold(self, tuner: list[TunerItem], assessor: list[AssessorItem]) -> None:
        for item in (*tuner, assessor[-1]):
            self._tuner.take(item)  # type: ignore[arg-type]  # an end is for both
        for told in assessor:
            self._assessor.take(told)

    def _snapshot(self) -> None:
        for queue, fold in ((Queue.TUNER, self._tuner), (Queue.ASSESSOR, self._assessor)):
            memory = json.dumps(fold.state_dict(), separators=(",", ":"))
            state = sealed(memory, makers(self._experiment.spec)[queue])
            self._changes.snapshots.append(
                StoredSnapshot(experiment_id=EXPERIMENT_ID, queue=queue, line=self._line, state=state, at=self._at)
            )


def _loss(number: int, step: int) -> float:
    return math.exp(-step / 30) + 0.1 * math.sin(number)
