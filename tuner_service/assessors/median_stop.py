"""``median_stop``: stop a trial whose best value so far is worse than the median of what others averaged by then.

The rule of Google Vizier, as NNI and Optuna have it too. At step s the trial's best value so far is compared with
the median, over the trials that succeeded and reported at s, of the mean of their values up to and including s.
NaN and infinities count as the worst. Trials that failed, were stopped or canceled are not compared with.

Values are kept with the sign that makes smaller better.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import read, written
from tuner_service.assessors.step_values import StepValues
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.ranges import FLOAT_LIMIT
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus


class MedianStop(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(self, objective: Objective, *, start_step: int = 0, min_trials: int = 5) -> None:
        super().__init__(objective)
        self._start_step = start_step
        self._min_trials = min_trials
        self._means = StepValues()
        self._best: dict[int, tuple[int, float]] = {}  # trial -> (reports seen, best of them); only saves time

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        best = self._best_of(trial, reports)
        step = reports[-1].step
        means = self._means.at(step)
        if step < self._start_step or means is None or len(means) < self._min_trials:
            return Keep()
        median = _median(means)
        if not best > median:
            return Keep()
        return Stop(
            f"at step {step} the best value so far ({self._shown(best)}) is worse than the median "
            f"of {len(means)} earlier trials' averages ({self._shown(median)})"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self._best.pop(outcome.number, None)
        if outcome.status is not TrialStatus.SUCCEEDED:
            return
        means: dict[int, float] = {}
        total = 0.0
        for count, report in enumerate(reports, start=1):
            total = max(total + self._loss(report.value), -FLOAT_LIMIT)  # an overflow must not become inf - inf
            means[report.step] = total / count
        self._means.add(means)

    def fork(self) -> Self:
        forked = type(self)(self.objective, start_step=self._start_step, min_trials=self._min_trials)
        forked._means = self._means.fork()  # noqa: SLF001  # of its own class
        return forked

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "means": self._means.state(written)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._means.load(state["means"], read)
        self._best = {}

    def _best_of(self, trial: int, reports: Sequence[Report]) -> float:
        seen, best = self._best.get(trial, (0, math.inf))
        if seen != len(reports) - 1:  # a fork, or after a restart: the cache does not know the earlier ones
            best = min((self._loss(report.value) for report in reports), default=math.inf)
        best = min(best, self._loss(reports[-1].value))
        self._best[trial] = (len(reports), best)
        return best

    def _loss(self, value: float) -> float:
        if not math.isfinite(value):
            return math.inf
        return -value if self.objective.goal is Goal.MAXIMIZE else value

    def _shown(self, loss: float) -> str:
        if math.isinf(loss):
            return "none that is finite"
        return f"{-loss if self.objective.goal is Goal.MAXIMIZE else loss:g}"


def _median(ordered: array[float]) -> float:
    """Of an even number the worse of the middle two, as NNI has it."""
    return ordered[len(ordered) // 2]
