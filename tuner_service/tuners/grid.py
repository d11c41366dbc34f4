"""``grid``: every point of the grid once, in the grid's own order, then the end.

Choices, integers and stepped parameters give all of their values; a continuous one is divided into ``points``, its
ends included (in the logarithm where it is logarithmic; normal ones give their quantiles). The last parameter
varies fastest. Points that were run otherwise (added by a person, imported) are passed over, and so are those that
conditions or constraints leave out.
"""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace, parameters_key
from tuner_service.domain.trial import Parameters, TrialOutcome
from tuner_service.tuners.base import Exhausted, Suggestion, Tuner


class GridTuner(Tuner):
    needs_outcomes = False
    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective, *, points: int = 10) -> None:
        super().__init__(space, objective)
        self._points = points
        self._taken: dict[str, None] = {}
        self._start()

    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the order is the grid's own
        point = self.space.grid_point(self._next, self._points) if self._next < self._size else None
        return Exhausted() if point is None else point

    def pending(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._take(parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        self._take(outcome.parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._start()

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "taken": list(self._taken), "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._taken = dict.fromkeys(state["taken"])
        self._next = state["next"]

    def _take(self, parameters: Parameters) -> None:
        self._taken[parameters_key(parameters)] = None
        self._pass_over_taken()

    def _start(self) -> None:
        self._size = self.space.grid_size(self._points)
        why = self.space.grid_fault(self._points)
        if why:
            raise SearchSpaceNotSupportedError("grid", "search_space", why)
        self._next = 0
        self._pass_over_taken()

    def _pass_over_taken(self) -> None:
        """Ends: there are at most as many taken points as there were trials, and empty places have a limit."""
        while (found := self.space.next_grid_point(self._next, self._points)) is not None:
            self._next, point = found
            if parameters_key(point) not in self._taken:
                return
            self._next += 1
        self._next = self._size
