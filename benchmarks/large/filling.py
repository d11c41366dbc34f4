"""An experiment of millions of reports that ended long ago, written through the store as a service writes: in steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trials.wire.attempt import AttemptKey
from trials.wire.plain import to_plain
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.changes import Changes, JournalLine, MetricRow
from tuner_service.dispatcher.items import Queue
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
from tuner_service.domain.trial import Attempt, AttemptStatus, Trial, TrialOutcome, TrialReason, TrialStatus
from tuner_service.storage.engine import open_store

EXPERIMENT_ID = "large"
AGE_S = 100 * 86_400.0  # since its end
TRIALS_AT_ONCE = 20  # in a commit
REPORTS_OF_A_LINE = 100  # of the journal: trials that report often
SPACE = {f"x{i}": {"type": "float", "low": 0, "high": 1} for i in range(4)}


@dataclass(frozen=True, kw_only=True)
class Size:
    trials: int
    reports: int  # of each trial
    values: int  # in each report

    @property
    def rows(self) -> int:
        return self.trials * self.reports


def fill(database: str | Path, size: Size, told: Callable[[int], None]) -> float:
    """The seconds that it took; ``told`` hears of how many trials are there."""
    begun = time.perf_counter()
    store = open_store(database, SystemClock())
    try:
        writing = _Writing(size, SystemClock().now() - AGE_S, store.lineage)
        for first in range(1, size.trials + 1, TRIALS_AT_ONCE):
            last = min(first + TRIALS_AT_ONCE - 1, size.trials)
            store.commit(writing.step(range(first, last + 1)))
            told(last)
    finally:
        store.close()
    return time.perf_counter() - begun


class _Writing:
    def __init__(self, size: Size, at: float, lineage: str) -> None:
        self._size, self._at, self._lineage, self._line = size, at, lineage, 0
        spec = ExperimentSpec(
            name="large",
            seed=1,
            objective=Objective(metric="m0"),
            search_space=SPACE,
            tuner=AlgorithmSpec(name="random"),
            assessor=AlgorithmSpec(name="median_stop"),
            budget=Budget(trials=size.trials, parallel=8),
            trial=TrialTemplate(command=("python", "-c", "pass")),
        )
        self._experiment = Experiment(
            id=EXPERIMENT_ID,
            spec=spec,
            status=ExperimentStatus.COMPLETED,
            reason=ExperimentReason.BUDGET_REACHED,
            created_at=at - 86_400.0,
            started_at=at - 86_400.0,
            ended_at=at,
        )
        self._names = [f"m{index}" for index in range(size.values)]

    def step(self, numbers: range) -> Changes:
        changes = Changes()
        for number in numbers:
            self._trial(changes, number)
        changes.experiments[EXPERIMENT_ID] = replace(
            self._experiment,
            counts={TrialStatus.SUCCEEDED.value: numbers[-1]},
            next_line=self._line + 1,
            next_number=numbers[-1] + 1,
            tuner_cursor=self._line,
            assessor_cursor=self._line,
            best_number=1,
            best_value=_value(1, self._size.reports - 1, 0),
        )
        return changes

    def _journal(self, changes: Changes, kind: str, payload: dict[str, object], *queues: Queue) -> int:
        self._line += 1
        changes.journal.append(
            JournalLine(
                experiment_id=EXPERIMENT_ID, line=self._line, at=self._at, kind=kind, payload=payload, queues=queues
            )
        )
        return self._line

    def _trial(self, changes: Changes, number: int) -> None:
        reports = self._size.reports
        decided = self._journal(changes, "suggestion_requested", {"number": number}, Queue.TUNER)
        self._journal(changes, "attempt_launched", {"number": number, "attempt": 1})
        for first in range(1, reports + 1, REPORTS_OF_A_LINE):
            self._reports(changes, number, range(first, min(first + REPORTS_OF_A_LINE, reports + 1)))
        reported = self._line
        self._journal(
            changes, "attempt_ended", {"number": number, "attempt": 1, "cause": "exited", "code": 0, "signal": None}
        )
        last = _value(number, reports - 1, 0)
        parameters: dict[str, object] = {name: (number * 0.618 + index * 0.31) % 1 for index, name in enumerate(SPACE)}
        outcome = TrialOutcome(
            number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=last, step=reports - 1
        )
        told = self._journal(changes, "trial_ended", {"outcome": to_plain(outcome)}, Queue.TUNER, Queue.ASSESSOR)
        changes.trials[EXPERIMENT_ID, number] = Trial(
            experiment_id=EXPERIMENT_ID,
            number=number,
            status=TrialStatus.SUCCEEDED,
            parameters=parameters,
            reason=TrialReason.FINAL_METRIC,
            decided_line=decided,
            told_line=told,
            final={"m0": last},
            value=last,
            last_step=reports - 1,
            last_value=last,
            last_metrics={"m0": last},
            best_value=last,
            reports_line=reported,
            attempts=1,
            metric_names=tuple(self._names),
            created_at=self._at,
            started_at=self._at,
            ended_at=self._at,
            running_s=60.0,
        )
        attempt = Attempt(
            key=AttemptKey(experiment_id=EXPERIMENT_ID, number=number, attempt=1),
            nonce=f"filled-{number}",
            lineage=self._lineage,
            agent_id="filled",
            status=AttemptStatus.EXITED,
            acknowledged=reports,
            exit=ExitRecord(cause=ExitCause.EXITED, code=0),
            created_at=self._at,
            started_at=self._at,
            ended_at=self._at,
            last_heard_at=self._at,
        )
        changes.attempts[attempt.key] = attempt

    def _reports(self, changes: Changes, number: int, sequences: range) -> None:
        payload: dict[str, object] = {
            "number": number, "attempt": 1, "first": sequences[0], "last": sequences[-1],
        }  # fmt: skip
        line = self._journal(changes, "reports", payload, Queue.ASSESSOR)
        for sequence in sequences:
            values = {name: _value(number, sequence - 1, index) for index, name in enumerate(self._names)}
            changes.metrics.append(
                MetricRow(
                    experiment_id=EXPERIMENT_ID,
                    number=number,
                    attempt=1,
                    sequence=sequence,
                    line=line,
                    step=sequence - 1,
                    values=values,
                    first=True,
                    objective=values["m0"],
                    at=self._at,
                )
            )


def _value(number: int, step: int, index: int) -> float:
    """As losses are: of seventeen digits, and alike from step to step."""
    return math.exp(-step / 300) + ((number * 7_919 + step * 31 + index * 104_729) % 100_003) / 1_000_033
