"""``bohb``: Hyperband whose new trials are proposed by a model.

Falkner, Klein and Hutter, "BOHB: Robust and Efficient Hyperparameter Optimization at Scale", 2018. Each rung has a
model of its results, of the tuner ``tpe`` or ``gp``; the one of the highest rung with ``min_results`` is asked. A
portion of the trials is drawn at random all the same, so that the search keeps Hyperband's guarantee.
"""

from __future__ import annotations

import random
from typing import Any

from tuner_service.advisors.hyperband import Hyperband
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import SOURCE_IMPORTED, Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Tuner
from tuner_service.tuners.registry import TUNERS, create_tuner

MODEL_REDRAWS = 2  # where what it suggests was begun with already; then a random draw


class Bohb(Hyperband):
    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        model: str = "tpe",
        min_results: int = 8,
        random_fraction: float = 0.33,
        **rungs: int,
    ) -> None:
        super().__init__(space, objective, **rungs)
        self._min_results = min_results
        self._random_fraction = random_fraction
        self._models = [_model(model, space, objective) for _ in range(len(self._levels) + 1)]
        self._counts = [0] * len(self._models)  # results that are numbers
        self._parameters: dict[int, Parameters] = {}  # of the trials that live

    def propose(self, number: int, rng: random.Random, first: int) -> Parameters:
        draws_at_random = rng.random() < self._random_fraction
        enough = [height for height, count in enumerate(self._counts) if count >= self._min_results]
        if draws_at_random or not enough:
            return super().propose(number, rng, first)
        for _ in range(1 + MODEL_REDRAWS):
            # The model of a rung knows only the trials that have come there.
            suggestion = self._models[enough[-1]].suggest(number, rng)
            if isinstance(suggestion, dict) and (self._draws.is_new(suggestion) or self._draws.has_no_more):
                return suggestion
        return super().propose(number, rng, first)

    def proposed(self, trial: int, parameters: Parameters) -> None:
        self._parameters[trial] = parameters

    def entered(self, trial: int, height: int) -> None:
        self._models[height].pending(trial, self._parameters[trial])

    def measured(self, trial: int, height: int, value: float | None, *, own_failure: bool = False) -> None:
        status = TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED
        self._counts[height] += value is not None
        parameters = self._parameters[trial]
        outcome = TrialOutcome(number=trial, status=status, parameters=parameters, value=value, own_failure=own_failure)
        self._models[height].observe(outcome)

    def left(self, trial: int) -> None:
        del self._parameters[trial]

    def imported(self, outcome: TrialOutcome) -> None:
        """Results of whole trials: the highest model learns them."""
        self._counts[-1] += outcome.value is not None
        if outcome.source == SOURCE_IMPORTED:
            self._models[-1].import_results([outcome])
        else:
            self._models[-1].observe(outcome)

    def added(self, number: int, parameters: Parameters) -> None:
        super().added(number, parameters)
        self._models[-1].pending(number, parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        for model in self._models:
            model.update_search_space(space)

    def state_dict(self) -> dict[str, Any]:
        models = [model.state_dict() for model in self._models]  # type: ignore[attr-defined]  # ours have both
        learned = {"models": models, "counts": self._counts, "parameters": list(self._parameters.items())}
        return {**super().state_dict(), **learned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for model, told in zip(self._models, state["models"], strict=True):
            model.load_state_dict(told)  # type: ignore[attr-defined]  # ours have both
        self._counts = list(state["counts"])
        self._parameters = dict(state["parameters"])


def _model(name: str, space: SearchSpace, objective: Objective) -> Tuner:
    """Asked from the first result on: how many it needs is said by ``min_results``."""
    start_up = {"n_startup_trials": 0}
    takes = {option.name for option in TUNERS[name].options}
    return create_tuner(name, {k: v for k, v in start_up.items() if k in takes}, space=space, objective=objective)
