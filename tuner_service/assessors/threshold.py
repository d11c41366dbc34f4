"""``threshold``: stop a trial whose value leaves the bounds within which a trial can still be any good.

Optuna's ThresholdPruner. It learns nothing: a trial is judged by its newest value alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.domain.experiment import Objective
from tuner_service.domain.ranges import FLOAT_LIMIT
from tuner_service.domain.trial import Report, TrialOutcome


class Threshold(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(
        self,
        objective: Objective,
        *,
        lower: float = -FLOAT_LIMIT,
        upper: float = FLOAT_LIMIT,
        start_step: int = 0,
        stop_on_nan: bool = True,
    ) -> None:
        super().__init__(objective)
        self._lower, self._upper, self._start_step, self._stop_on_nan = lower, upper, start_step, stop_on_nan

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:  # noqa: ARG002  # the port's signature
        step, value = reports[-1].step, reports[-1].value
        if step < self._start_step:
            return Keep()
        if math.isnan(value):
            return Stop(f"at step {step} its value is no number") if self._stop_on_nan else Keep()
        if value > self._upper:
            return Stop(f"at step {step} its value ({value:g}) is above {self._upper:g}")
        if value < self._lower:
            return Stop(f"at step {step} its value ({value:g}) is below {self._lower:g}")
        return Keep()

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        pass

    def fork(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
