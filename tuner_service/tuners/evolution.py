"""``evolution``: regularized evolution, in which the oldest die and not the worst.

Real, Aggarwal, Huang and Le, "Regularized Evolution for Image Classifier Architecture Search", 2019. The population is
the newest ``population_size`` trials that ended with a value; of ``sample_size`` of them, drawn at random, the best one
has a child, which differs from it in one parameter.
"""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import losses
from tuner_service.domain.ranges import Choice, Permutation, Range, Subset
from tuner_service.domain.search_space import Flat, SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.domain.unit_cube import unit_of, value_at
from tuner_service.tuners.model_tuner import ModelTuner
from tuner_service.tuners.trial_notes import FINISHED, TrialNote

NEARBY = 0.5  # how often a number moves nearby and is not drawn anew
STEP = 0.1  # the deviation of such a move, in the unit cube
FAR = float("inf")


class EvolutionTuner(ModelTuner):
    def __init__(
        self, space: SearchSpace, objective: Objective, *, population_size: int = 20, sample_size: int = 5
    ) -> None:
        super().__init__(space, objective, startup=population_size)
        self._population_size, self._sample_size = population_size, sample_size

    def _forget(self) -> None:
        """Nothing is kept beside the notes."""

    def _propose(self, rng: random.Random) -> Parameters:
        population = self.modelled[-self._population_size :]
        sample = rng.sample(population, min(self._sample_size, len(population)))
        parent = self.space.flatten(min(sample, key=self._rank).parameters)
        return self.space.sample(rng) if parent is None else self._mutated(parent, rng)

    def _rank(self, note: TrialNote) -> tuple[bool, float]:
        loss = losses(self.objective, note.values)
        return note.state != FINISHED, FAR if loss is None else loss[0]

    def _mutated(self, parent: Flat, rng: random.Random) -> Parameters:
        """One parameter that is there takes another value; what comes with it anew is drawn."""
        ranges: dict[str, Range] = {}

        def note(path: str, range_: Range) -> Any:
            ranges[path] = range_
            return parent[path]

        self.space.build(note)
        movable = [path for path, range_ in ranges.items() if _has_others(range_)]
        moved = rng.choice(movable) if movable else None

        def choose(path: str, range_: Range) -> Any:
            if path == moved:
                return _other(range_, parent[path], rng)
            return parent[path] if path in parent else range_.sample(rng)

        return self.space.build(choose)


def _has_others(range_: Range) -> bool:
    return len(range_.options) > 1 if isinstance(range_, Choice) else range_.size > 1


def _other(range_: Range, value: Any, rng: random.Random) -> Any:
    if isinstance(range_, Choice):
        index = rng.randrange(len(range_.options) - 1)
        return index + (index >= value)
    if isinstance(range_, Permutation):
        one, other = rng.sample(range(len(value)), 2)
        swapped = list(value)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        return tuple(swapped)
    if isinstance(range_, Subset) or rng.random() >= NEARBY:
        return range_.sample(rng)
    return value_at(range_, min(max(unit_of(range_, value) + rng.gauss(0, STEP), 0.0), 1.0))
