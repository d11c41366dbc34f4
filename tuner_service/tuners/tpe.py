"""``tpe``: the tree-structured Parzen estimator of Optuna, multivariate and grouped.

Bergstra, Bardenet, Bengio and Kégl, "Algorithms for Hyper-Parameter Optimization", 2011; Watanabe, "Tree-Structured
Parzen Estimator: Understanding Its Algorithm Components", 2023. Several objectives: Ozaki and others, "Multiobjective
Tree-Structured Parzen Estimator", 2022. That tells good trials from bad ones by the hypervolume that they add, the
time for which multiplies with each objective. So with more than ``HYPERVOLUME_OBJECTIVES`` each suggestion weighs the
objectives at random, and its model is one of the weighed loss, as in ParEGO (Knowles, 2006).

Past a thousand ended trials its model is shown some hundred of them (``THINNING``): of the others it would only learn
where bad values lie, which the rest of them shows as well, and its cost would grow with their number.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import losses
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.optuna_tuner import OptunaTuner
from tuner_service.tuners.trial_notes import FINISHED, RUNNING, Thinning, TrialNote

THINNING = Thinning(limit=1_000, keep=300, refresh=100)
HYPERVOLUME_OBJECTIVES = 4
MANY_OBJECTIVES = 4  # from which on the model is shown fewer trials, each of which costs more
THINNING_OF_MANY = Thinning(limit=300, keep=150, refresh=50)
SUM_PORTION = 0.05  # of the sum of weighed losses, beside the largest of them


class TpeTuner(OptunaTuner):
    thinning = THINNING
    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective, *, n_startup_trials: int = 10, **options: Any) -> None:
        super().__init__(space, objective, startup=n_startup_trials)
        self._options = {"multivariate": True, "constant_liar": True, **options}
        self.joint = bool(self._options["multivariate"])
        self._weighs = len(objective.every) > HYPERVOLUME_OBJECTIVES
        if len(objective.every) >= MANY_OBJECTIVES:
            self.thinning = THINNING_OF_MANY

    def _make_sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        options: dict[str, Any] = {**self._options, "n_startup_trials": 0}  # start-up is the tuner's
        if self.joint and self.space.is_conditional:
            options["group"] = True
        return TPESampler(seed=seed, **options)

    def _propose(self, rng: random.Random) -> Parameters:
        if not self._weighs:
            return super()._propose(rng)
        from tuner_service.tuners.optuna_model import OptunaModel

        weighed = self._weighed(self._shown(), rng)
        model = OptunaModel(
            self.space, Objective(metric=self.objective.metric), make_sampler=self._make_sampler, joint=self.joint
        )
        running = [note for note in self.notes if note.state == RUNNING]
        for index, note in enumerate(weighed + running):
            model.add(index, note)
        return model.suggest(rng.getrandbits(32))

    def _weighed(self, notes: list[TrialNote], rng: random.Random) -> list[TrialNote]:
        """The notes with one loss each, in which every objective is seen from its best to its worst."""
        import numpy as np

        from tuner_service.tuners.model_surrogate import LIMIT

        known = [losses(self.objective, note.values) for note in notes if note.state == FINISHED]
        weights = np.array([rng.expovariate(1.0) for _ in self.objective.every])
        found = np.clip(np.array(known, dtype=np.float64).reshape(len(known), len(weights)), -LIMIT, LIMIT)
        if len(found):
            extent = np.ptp(found, axis=0)
            found = (found - found.min(axis=0)) / np.where(extent > 0, extent, 1.0) * (weights / weights.sum())
        values = iter((found.max(axis=1, initial=0.0) + SUM_PORTION * found.sum(axis=1)).tolist())
        return [replace(note, values=(next(values),)) if note.state == FINISHED else note for note in notes]
