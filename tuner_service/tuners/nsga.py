"""``nsga2`` and ``nsga3``: populations that are crossed, mutated and selected, through Optuna's samplers.

Deb, Pratap, Agarwal and Meyarivan, "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002; Deb and Jain,
"An evolutionary many-objective optimization algorithm using reference-point-based nondominated sorting", 2014.

A generation is ``population_size`` trials in the order in which they ended, imported and added ones included; its
parents are the best of the generation before and of its parents. So the generations follow from the history alone,
where Optuna's own follow from when suggestions were asked for.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.model_tuner import ModelTuner
from tuner_service.tuners.trial_notes import TrialNote


class Nsga2Tuner(ModelTuner):
    sampler_name: ClassVar[str] = "NSGAIISampler"
    several_objectives = True

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        population_size: int = 50,
        crossover_prob: float = 0.9,
        swapping_prob: float = 0.5,
    ) -> None:
        super().__init__(space, objective, startup=population_size)
        self._size = population_size
        self._options = {"crossover_prob": crossover_prob, "swapping_prob": swapping_prob}
        self._forget()

    def _forget(self) -> None:
        self._population: Any = None
        self._generations = 0  # that the parents were selected from
        self._parents: list[TrialNote] = []

    def _derived_state(self) -> dict[str, Any]:
        places = {id(note): index for index, note in enumerate(self.notes)}
        return {"generations": self._generations, "parents": [places[id(note)] for note in self._parents]}

    def _load_derived(self, state: dict[str, Any]) -> None:
        self._generations = state["generations"]
        self._parents = [self.notes[index] for index in state["parents"]]

    def _propose(self, rng: random.Random) -> Parameters:
        from tuner_service.tuners.optuna_population import Population

        if self._population is None:
            self._population = Population(self.space, self.objective, sampler_name=self.sampler_name)
        while (self._generations + 1) * self._size <= len(self.modelled):
            first = self._generations * self._size
            candidates = [*self._parents, *self.modelled[first : first + self._size]]
            self._generations += 1
            # Selection draws as well (among equals): from the generation's own number, the same whenever it is done.
            self._parents = self._population.selected(candidates, self._size, seed=self._generations)
        parameters: Parameters = self._population.child(
            self._parents, self._options, size=self._size, seed=rng.getrandbits(32)
        )
        return parameters


class Nsga3Tuner(Nsga2Tuner):
    sampler_name = "NSGAIIISampler"
