"""``random``: independent draws from the space; a repetition only when the space holds nothing else."""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome
from tuner_service.tuners.base import Suggestion, Tuner
from tuner_service.tuners.proposed import ProposedParameters

REDRAWS = 20  # before the rest of a finite space is looked through


class RandomTuner(Tuner):
    suggests_in_parallel = True
    needs_outcomes = False
    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        super().__init__(space, objective)
        self._proposed = ProposedParameters(space)

    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the port's signature
        parameters = self.space.sample(rng)
        if parameters not in self._proposed or self._proposed.fills_the_space:
            return parameters
        for _ in range(REDRAWS):
            redrawn = self.space.sample(rng)
            if redrawn not in self._proposed:
                return redrawn
        return self._proposed.unproposed(rng) or parameters

    def pending(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._proposed.add(parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        self._proposed.add(outcome.parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._proposed = self._proposed.moved_to(space)

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "proposed": self._proposed.keys()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._proposed.restore(state["proposed"])
