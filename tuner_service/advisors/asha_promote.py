"""``asha_promote``: asynchronous successive halving in its promoting form.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020. Whenever there is room, the best trial that
rests in the best portion (one of ``reduction_factor``) of the highest rung possible goes on to the next rung; where
there is none, a new trial starts. Nobody waits for a rung to fill. NaN and infinity are worst, and never promoted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tuner_service.advisors.base import Choice, Promote, Start
from tuner_service.advisors.rungs import Result, Rung, RungAdvisor, loss_in, loss_out
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, DecisionKind, Report, TrialOutcome
from tuner_service.tuners.base import NotYet


class AshaPromote(RungAdvisor):
    def __init__(self, space: SearchSpace, objective: Objective, **rungs: int) -> None:
        super().__init__(space, objective, **rungs)
        self._rungs = [Rung() for _ in self._levels]
        self._heights: dict[int, int] = {}  # trial → the rung it runs to or rests at; beyond the last one: to its end
        self._resting: dict[int, Result] = {}

    def suggest(self, number: int, rng: random.Random) -> Choice:
        for height in reversed(range(len(self._rungs))):
            rung = self._rungs[height]
            best = rung.best_among(len(rung.results) // self._factor)
            if best is not None:
                return Promote(trial=best[1], until_step=self._until(height + 1))
        if not number:
            return NotYet()
        return Start(parameters=self._draws.draw(rng), until_step=self._until(0))

    def decided(self, decision: Decision) -> None:
        if decision.kind is DecisionKind.PROMOTE:
            result = self._resting.pop(decision.number)
            self._rungs[self._heights[decision.number]].take(result)
            self._heights[decision.number] += 1
        else:
            self._heights[decision.number] = 0
            self._draws.begun(decision.number, decision.parameters or {})

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        result = (self.loss_of(reports[-1].value if reports else None), trial)
        self._resting[trial] = result
        self._draws.rested(trial)
        self._rungs[self._heights[trial]].add(result, waits=True)

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        self._draws.ended(outcome)
        height = self._heights.pop(outcome.number, len(self._rungs))
        resting = self._resting.pop(outcome.number, None)
        if height == len(self._rungs):
            return
        if resting is not None:
            self._rungs[height].take(resting)
        elif outcome.value is not None:  # it ended before it came to the rung, and is measured by what it reached
            self._rungs[height].add((self.loss_of(outcome.value), outcome.number), waits=False)

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": 1,
            "rungs": [rung.state() for rung in self._rungs],
            "heights": list(self._heights.items()),
            "resting": [[number, loss_out(loss)] for number, (loss, _) in self._resting.items()],
            "draws": self._draws.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rungs = [Rung.restored(rung) for rung in state["rungs"]]
        self._heights = dict(state["heights"])
        self._resting = {number: (loss_in(loss), number) for number, loss in state["resting"]}
        self._draws.restore(state["draws"])
