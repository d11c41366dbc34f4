"""Random draws that repeat nothing while the space has others: what advisors start trials with."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.proposed import ProposedParameters

REDRAWS = 20  # before the rest of a finite space is looked through


class Draws:
    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._proposed = ProposedParameters(space)

    def draw(self, rng: random.Random) -> Parameters:
        parameters = self._space.sample(rng)
        if parameters not in self._proposed or self._proposed.fills_the_space:
            return parameters
        for _ in range(REDRAWS):
            redrawn = self._space.sample(rng)
            if redrawn not in self._proposed:
                return redrawn
        return self._proposed.unproposed(rng) or parameters

    def is_new(self, parameters: Parameters) -> bool:
        """Whether it was neither drawn nor told of."""
        return parameters not in self._proposed

    def add(self, parameters: Parameters) -> None:
        self._proposed.add(parameters)

    def move_to(self, space: SearchSpace) -> None:
        self._space, self._proposed = space, self._proposed.moved_to(space, json.loads)

    def state(self) -> list[str]:
        return self._proposed.keys()

    def restore(self, state: Sequence[str]) -> None:
        self._proposed.restore(state, json.loads)
