"""``percentile``: stop a trial whose best value so far is worse than a percentile of what others had by then.

The rule of Optuna's PercentilePruner, of which the median is the case of 50. At step s the trial's best value so far
is compared with the best values so far at s of the trials that succeeded and reported there. NaN and infinity are
worst. Trials that failed, were stopped or canceled are not compared with.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import loss_of, read, shown, written
from tuner_service.assessors.step_values import StepValues
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus


class Percentile(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(
        self, objective: Objective, *, percentile: float = 25.0, start_step: int = 0, min_trials: int = 5
    ) -> None:
        super().__init__(objective)
        self._percentile, self._start_step, self._min_trials = percentile, start_step, min_trials
        self._bests = StepValues()
        self._seen: dict[int, tuple[int, float]] = {}  # trial → (reports seen, best of them); only saves time

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        best = self._best_of(trial, reports)
        step = reports[-1].step
        bests = self._bests.at(step)
        if step < self._start_step or bests is None or len(bests) < self._min_trials:
            return Keep()
        limit = _percentile(bests, self._percentile)
        if not best > limit:
            return Keep()
        return Stop(
            f"at step {step} the best value so far ({shown(self.objective, best)}) is worse than that of the best "
            f"{self._percentile:g} percent of {len(bests)} earlier trials ({shown(self.objective, limit)})"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self._seen.pop(outcome.number, None)
        if outcome.status is not TrialStatus.SUCCEEDED:
            return
        bests: dict[int, float] = {}
        best = math.inf
        for report in reports:
            best = min(best, loss_of(self.objective, report.value))
            bests[report.step] = best
        self._bests.add(bests)

    def fork(self) -> Self:
        forked = type(self)(
            self.objective, percentile=self._percentile, start_step=self._start_step, min_trials=self._min_trials
        )
        forked._bests = self._bests.fork()  # noqa: SLF001  # of its own class
        return forked

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "bests": self._bests.state(written)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._bests.load(state["bests"], read)
        self._seen = {}

    def _best_of(self, trial: int, reports: Sequence[Report]) -> float:
        seen, best = self._seen.get(trial, (0, math.inf))
        if seen != len(reports) - 1:  # a fork, or after a restart: the cache does not know the earlier ones
            best = min((loss_of(self.objective, report.value) for report in reports), default=math.inf)
        best = min(best, loss_of(self.objective, reports[-1].value))
        self._seen[trial] = (len(reports), best)
        return best


def _percentile(ordered: array[float], percentile: float) -> float:
    """By linear interpolation between the two nearest ranks, as NumPy has it."""
    place = (len(ordered) - 1) * percentile / 100
    below = int(place)
    if below + 1 >= len(ordered) or math.isinf(ordered[below + 1]):
        return ordered[below]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
