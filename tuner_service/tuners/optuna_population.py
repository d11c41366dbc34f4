"""Selection and crossover of Optuna's genetic samplers, for populations that are given to them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIIISampler, NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.optuna_model import Components, directions_of, frozen, worst_of
from tuner_service.tuners.trial_notes import FINISHED, TrialNote


class _Given:
    """What a sampler would otherwise look up in its study: which trials belong to which generation."""

    members: Sequence[FrozenTrial] = ()
    parents: Sequence[FrozenTrial] = ()

    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:  # noqa: ARG002  # the sampler's signature
        return 1

    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:  # noqa: ARG002  # likewise
        return list(self.members)

    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:  # noqa: ARG002  # likewise
        return list(self.parents)


class _NSGAIISampler(_Given, NSGAIISampler):
    pass


class _NSGAIIISampler(_Given, NSGAIIISampler):
    pass


SAMPLERS: dict[str, type[_NSGAIISampler | _NSGAIIISampler]] = {
    "NSGAIISampler": _NSGAIISampler,
    "NSGAIIISampler": _NSGAIIISampler,
}


class Population:
    def __init__(self, space: SearchSpace, objective: Objective, *, sampler_name: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it greets every new study
        self._space, self._sampler = space, SAMPLERS[sampler_name]
        self._components = Components(space)
        self._worst = worst_of(objective)
        self._study = optuna.create_study(
            directions=directions_of(objective), sampler=optuna.samplers.RandomSampler(seed=0)
        )
        self._scratch = create_trial(state=TrialState.RUNNING)
        self._crossed: Sequence[TrialNote] = ()  # the parents that the last child had, and what was made of them
        self._crossed_trials: list[FrozenTrial] = []
        self._crossed_shared: dict[str, BaseDistribution] = {}

    def selected(self, candidates: Sequence[TrialNote], size: int, *, seed: int) -> list[TrialNote]:
        """The ``size`` best of them: by front, then the less crowded or the nearer to a reference direction."""
        trials = [self._judged(number, note) for number, note in enumerate(candidates)]
        sampler = self._made(size, seed, {})
        sampler.members, sampler.parents = trials, ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for the largest of no values where all are infinite
            return [candidates[trial.number] for trial in sampler.select_parent(self._study, 1)]

    def child(self, parents: Sequence[TrialNote], options: dict[str, Any], *, size: int, seed: int) -> Parameters:
        """A new point: crossed from two of the parents and mutated. What it takes from neither is drawn at random.

        A list of parents is not changed after it was given.
        """
        if parents is not self._crossed:
            self._crossed_trials = [self._trial(number, note) for number, note in enumerate(parents)]
            self._crossed_shared = self._shared(self._crossed_trials)
            self._crossed = parents
        sampler = self._made(size, seed, options)
        sampler.parents, shared = self._crossed_trials, self._crossed_shared
        relative = sampler.sample_relative(self._study, self._scratch, shared) if shared else {}

        def ask(name: str, distribution: BaseDistribution) -> Any:
            if name in relative and shared.get(name) == distribution:
                return relative[name]
            return sampler.sample_independent(self._study, self._scratch, name, distribution)

        return self._components.build(ask)

    def _made(self, size: int, seed: int, options: dict[str, Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some samplers are called experimental
            return self._sampler(population_size=size, seed=seed, **options)

    def _judged(self, number: int, note: TrialNote) -> FrozenTrial:
        """Without its parameters: selection looks at values only."""
        whole = TrialNote(number=number, parameters={}, state=FINISHED, values=note.values)
        trial = frozen(whole, ({}, {}), self._worst)
        trial.number = number
        return trial

    def _trial(self, number: int, note: TrialNote) -> FrozenTrial:
        flat = self._space.flatten(note.parameters)
        if flat is None:
            raise ValueError(f"{note.parameters} lie outside the space")
        whole = TrialNote(number=number, parameters=note.parameters, state=FINISHED, values=note.values)
        trial = frozen(whole, self._components.of(flat), self._worst)
        trial.number = number
        return trial

    def _shared(self, parents: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
        """What every parent has: crossover needs all of it of both."""
        first, *others = parents
        return {
            name: distribution
            for name, distribution in first.distributions.items()
            if not distribution.single() and all(other.distributions.get(name) == distribution for other in others)
        }
