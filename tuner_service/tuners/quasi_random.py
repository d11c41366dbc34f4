"""``quasi_random``: points of a scrambled Sobol sequence, which fill the space more evenly than random draws.

Owen, "Scrambling Sobol' and Niederreiter-Xing Points", 1998; the sequence and its scrambling are SciPy's, which
Optuna's sampler uses too. The scrambling follows from the experiment's seed; trial after trial takes the next point.
"""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.seeds import derive_seed
from tuner_service.domain.trial import Parameters, TrialOutcome
from tuner_service.tuners.base import Suggestion, Tuner
from tuner_service.tuners.proposed import ProposedParameters
from tuner_service.tuners.registry import SOBOL_DIMENSIONS

POINTS_TRIED = 64  # of the sequence, for one that was not proposed and keeps the constraints; then random draws
RANDOM_REDRAWS = 20
BLOCK = 256  # points computed at a time
SEQUENCE_LENGTH = 2**30  # then it begins again


class QuasiRandomTuner(Tuner):
    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        super().__init__(space, objective)
        if space.dimension > SOBOL_DIMENSIONS:
            why = f"it has {space.dimension} coordinates, more than {SOBOL_DIMENSIONS}"
            raise SearchSpaceNotSupportedError("quasi_random", "search_space", why)
        self._proposed = ProposedParameters(space)
        self._taken = 0  # trials that were given parameters
        self._block: tuple[int, Any] | None = None  # the place of its first point, the points

    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the place is in the history
        first: Parameters | None = None
        filled = self._proposed.fills_the_space
        for place in range(self._taken, self._taken + POINTS_TRIED):
            parameters = self.space.decode(self._point(place))
            if not self.space.admits(parameters):
                continue
            if filled or parameters not in self._proposed:
                return parameters
            first = first or parameters
        for _ in range(RANDOM_REDRAWS):
            parameters = self.space.sample(rng)
            if parameters not in self._proposed:
                return parameters
        return self._proposed.unproposed(rng) or first or parameters

    def pending(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._taken += 1
        self._proposed.add(parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        self._proposed.add(outcome.parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._block = None
        self._proposed = self._proposed.moved_to(space)

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "proposed": self._proposed.keys(), "taken": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._proposed.restore(state["proposed"])
        self._taken = state["taken"]
        self._block = None

    def _point(self, place: int) -> tuple[float, ...]:
        place %= SEQUENCE_LENGTH
        start = place - place % BLOCK
        if self._block is None or self._block[0] != start:
            from scipy.stats import qmc

            engine = qmc.Sobol(self.space.dimension, scramble=True, rng=derive_seed(self.experiment_seed, "sobol", 0))
            if start:
                engine.fast_forward(start)
            self._block = (start, engine.random(BLOCK).tolist())
        point: list[float] = self._block[1][place - start]
        return tuple(point)
