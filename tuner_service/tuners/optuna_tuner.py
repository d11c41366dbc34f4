"""Tuners whose model is a sampler of Optuna, kept a pure function of (generator, number, history).

From the notes an in-memory study is kept up to date, and each suggestion asks a new sampler, seeded from the generator
that is handed in, about that study. Optuna is imported with the first suggestion that needs it.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from typing import Any, ClassVar

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.model_tuner import ModelTuner
from tuner_service.tuners.trial_notes import FAILED_ITSELF, RUNNING, Thinning, TrialNote


class OptunaTuner(ModelTuner):
    thinning: Thinning
    joint = True
    of_whole: ClassVar[bool] = False  # True: the sampler's joint model needs a trial that was not stopped early
    finest: ClassVar[float] = math.inf  # a discrete range of more values is modelled as a continuous one
    constrained: ClassVar[bool] = False  # True: the sampler models a constraint, which failed trials break

    def __init__(self, space: SearchSpace, objective: Objective, *, startup: int) -> None:
        super().__init__(space, objective, startup=startup)
        self._forget()

    @abstractmethod
    def _make_sampler(self, seed: int) -> Any:
        """A new sampler of Optuna; it is asked once and dropped."""

    def _forget(self) -> None:
        self._model: Any = None
        self._chosen_at = 0
        self._chosen: list[TrialNote] = []  # of those that had ended then

    def _noted(self, index: int) -> None:
        if self._model is not None and self._is_current(self.notes[index]):
            self._model.add(index, self.notes[index])

    def _finished(self, index: int) -> None:
        if self._model is not None and self._is_current(self.notes[index]):
            self._model.finish(index, self.notes[index])

    def _propose(self, rng: random.Random) -> Parameters:
        if self._model is None:
            self._model = self._built()
        parameters: Parameters = self._model.suggest(rng.getrandbits(32))
        return parameters

    def _is_current(self, newest: TrialNote) -> bool:
        """Whether the model still shows the trials that it should; otherwise it is dropped, and built when asked."""
        breaks_constraint = self.constrained and newest.state == FAILED_ITSELF
        if self.thinning.chosen_at(len(self.taught)) == self._chosen_at and not breaks_constraint:
            return True
        self._forget()
        return False

    def _shown(self) -> list[TrialNote]:
        """The notes with an outcome that a model is shown now."""
        count = self.thinning.chosen_at(len(self.taught))
        if count != self._chosen_at:
            self._chosen_at, self._chosen = count, self.thinning.choose(self.taught[:count], self.objective)
        return self._chosen + self.taught[count:] if count else self.taught

    def _built(self) -> Any:
        from tuner_service.tuners.optuna_model import OptunaModel

        shown = self._shown()
        model = OptunaModel(
            self.space,
            self.objective,
            make_sampler=self._make_sampler,
            joint=self.joint,
            of_whole=self.of_whole,
            finest=self.finest,
            constrained=self.constrained and any(note.state == FAILED_ITSELF for note in shown),
        )
        wanted = {id(note) for note in shown}
        for index, note in enumerate(self.notes):
            if note.state == RUNNING or id(note) in wanted:
                model.add(index, note)
        return model
