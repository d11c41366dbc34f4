"""``asha``: asynchronous successive halving in its stopping form.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020, as ASHA's stopping variant in Syne Tune has
it. Rungs lie at ``min_step`` and every power of ``reduction_factor`` times that. A trial that comes to a rung is
stopped unless its value is among the best portion, one of ``reduction_factor``, of what trials had there so far. The
first trials at a rung, fewer than that factor, go on. NaN and infinity are worst.

The values of a rung are one sorted list, which is never changed once it is made: a new value makes a new one, so that
a fork shares them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import loss_of, read, shown, written
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome

RUNGS_LIMIT = 64  # with a factor of 2 that is far beyond the highest step


class Asha(Assessor):
    def __init__(self, objective: Objective, *, min_step: int = 1, reduction_factor: int = 3) -> None:
        super().__init__(objective)
        self._min_step, self._factor = min_step, reduction_factor
        self._steps = [min_step * reduction_factor**height for height in range(RUNGS_LIMIT)]
        self._rungs: dict[int, array[float]] = {}  # height → sorted losses
        self._next: dict[int, int] = {}  # trial → the height it comes to next

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        report = reports[-1]
        height = self._next.get(trial, 0)
        if height >= RUNGS_LIMIT or report.step < self._steps[height]:
            return Keep()
        while height + 1 < RUNGS_LIMIT and report.step >= self._steps[height + 1]:
            height += 1  # it reports rarely: of the rungs it passed at once the highest counts
        self._next[trial] = height + 1
        loss = loss_of(self.objective, report.value)
        losses = array("d", self._rungs.get(height, ()))
        insort(losses, loss)
        self._rungs[height] = losses
        allowed = -(-len(losses) // self._factor)
        if len(losses) < self._factor or bisect_left(losses, loss) < allowed:
            return Keep()
        return Stop(
            f"at step {report.step} its value ({shown(self.objective, loss)}) is not among the best {allowed} of "
            f"{len(losses)} trials that came to the rung at step {self._steps[height]} "
            f"({shown(self.objective, losses[allowed - 1])} and better)"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        self._next.pop(outcome.number, None)

    def fork(self) -> Self:
        forked = type(self)(self.objective, min_step=self._min_step, reduction_factor=self._factor)
        forked._rungs = dict(self._rungs)  # noqa: SLF001  # of its own class; the lists in it are never changed
        forked._next = dict(self._next)  # noqa: SLF001  # likewise
        return forked

    def state_dict(self) -> dict[str, Any]:
        rungs = [[height, [written(loss) for loss in losses]] for height, losses in self._rungs.items()]
        return {"version": 1, "rungs": rungs, "next": list(self._next.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rungs = {height: array("d", map(read, losses)) for height, losses in state["rungs"]}
        self._next = dict(state["next"])
