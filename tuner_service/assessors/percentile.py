"""``percentile``: stop a trial whose best value so far is worse than a percentile of what others had by then.

The rule of Optuna's PercentilePruner, of which the median is the case of 50. At step s the trial's best value so far
is compared with the best values so far at s of the trials that succeeded and reported there. NaN and infinity are
worst. Trials that failed, were stopped or canceled are not compared with.
"""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import loss_of, read, shown, written
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

STEP_LIMIT = 10_000  # different steps that values are kept for; at later ones no trial is stopped

Bests = dict[int, "array[float]"]  # step → sorted losses, never changed once made, so that a fork shares them


class Percentile(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(
        self, objective: Objective, *, percentile: float = 25.0, start_step: int = 0, min_trials: int = 5
    ) -> None:
        super().__init__(objective)
        self._percentile, self._start_step, self._min_trials = percentile, start_step, min_trials
        self._bests: Bests = {}
        self._seen: dict[int, tuple[int, float]] = {}  # trial → (reports seen, best of them); only saves time

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        best = self._best_of(trial, reports)
        step = reports[-1].step
        bests = self._bests.get(step)
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
        changed: Bests = {}
        best = math.inf
        for report in reports:
            best = min(best, loss_of(self.objective, report.value))
            if report.step in self._bests or len(self._bests) + len(changed) < STEP_LIMIT:
                bests = changed[report.step] = array("d", self._bests.get(report.step, ()))
                insort(bests, best)
        self._bests = {**self._bests, **changed}

    def fork(self) -> Self:
        forked = type(self)(
            self.objective, percentile=self._percentile, start_step=self._start_step, min_trials=self._min_trials
        )
        forked._bests = self._bests  # noqa: SLF001  # of its own class; never changed once made
        return forked

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "bests": [[step, list(map(written, bests))] for step, bests in self._bests.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._bests = {step: array("d", map(read, bests)) for step, bests in state["bests"]}
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
