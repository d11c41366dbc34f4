"""``patience``: stop a trial that has not become better for a while.

Prechelt, "Early Stopping - But When?", 1998. A trial is stopped at the first report at which its best value has not
improved by more than ``min_delta`` within the last ``patience`` reports. It is compared with nothing but itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import loss_of, shown
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome

Progress = tuple[int, int, float]  # (reports seen, how many of them when it last became better, the best loss then)


class Patience(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(
        self, objective: Objective, *, patience: int = 20, min_delta: float = 0.0, start_step: int = 0
    ) -> None:
        super().__init__(objective)
        self._patience, self._min_delta, self._start_step = patience, min_delta, start_step
        self._progress: dict[int, Progress] = {}  # by trial; only saves time

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        seen, better_at, best = self._progress.get(trial, (0, 0, math.inf))
        if seen >= len(reports):
            seen, better_at, best = 0, 0, math.inf
        for count in range(seen + 1, len(reports) + 1):  # more than one in a fork, or after a restart
            loss = loss_of(self.objective, reports[count - 1].value)
            if loss < best - self._min_delta or (math.isinf(best) and loss < best):
                better_at, best = count, loss
        self._progress[trial] = (len(reports), better_at, best)
        waited = len(reports) - better_at
        if waited < self._patience or reports[-1].step < self._start_step:
            return Keep()
        return Stop(
            f"at step {reports[-1].step} it has not become better than {shown(self.objective, best)} for {waited} "
            "reports"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        self._progress.pop(outcome.number, None)

    def fork(self) -> Self:
        return type(self)(
            self.objective, patience=self._patience, min_delta=self._min_delta, start_step=self._start_step
        )

    def state_dict(self) -> dict[str, Any]:
        """What a trial has reached follows from its reports."""
        return {"version": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: ARG002  # there is nothing in it
        self._progress = {}
