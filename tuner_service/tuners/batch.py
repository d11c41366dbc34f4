"""``batch``: the parameters of a given list, each once and in its order, then the end."""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace, parameters_key
from tuner_service.domain.trial import Parameters, TrialOutcome
from tuner_service.tuners.base import Exhausted, Suggestion, Tuner


class BatchTuner(Tuner):
    """What was run otherwise (added by a person, imported) is passed over; so is what a live change left outside."""

    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective, *, parameters: list[Parameters]) -> None:
        super().__init__(space, objective)
        for index, wanted in enumerate(parameters):
            if not space.contains(wanted):
                why = f"item {index} of its list lies outside the search space: {wanted!r:.200}"
                raise SearchSpaceNotSupportedError("batch", f"parameters[{index}]", why)
        self._list = {parameters_key(wanted): wanted for wanted in parameters}
        self._taken: dict[str, None] = {}

    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the order is the list's own
        for key, wanted in self._list.items():
            if key not in self._taken and self.space.contains(wanted):
                return wanted
        return Exhausted()

    def pending(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._take(parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        self._take(outcome.parameters)

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "taken": list(self._taken)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._taken = dict.fromkeys(state["taken"])

    def _take(self, parameters: Parameters) -> None:
        key = parameters_key(parameters)
        if key in self._list:
            self._taken[key] = None
