"""``tpe``: the tree-structured Parzen estimator of Optuna, multivariate and grouped.

Bergstra, Bardenet, Bengio and Kégl, "Algorithms for Hyper-Parameter Optimization", 2011; Watanabe, "Tree-Structured
Parzen Estimator: Understanding Its Algorithm Components", 2023. Several objectives: Ozaki and others, "Multiobjective
Tree-Structured Parzen Estimator", 2022.

Past a thousand ended trials its model is shown some hundred of them (``THINNING``): of the others it would only learn
where bad values lie, which the rest of them shows as well, and its cost would grow with their number.
"""

from __future__ import annotations

from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.tuners.optuna_tuner import OptunaTuner
from tuner_service.tuners.trial_notes import Thinning

THINNING = Thinning(limit=1_000, keep=300, refresh=100)


class TpeTuner(OptunaTuner):
    thinning = THINNING
    several_objectives = True

    def __init__(self, space: SearchSpace, objective: Objective, *, n_startup_trials: int = 10, **options: Any) -> None:
        super().__init__(space, objective, startup=n_startup_trials)
        self._options = {"multivariate": True, "constant_liar": True, **options}
        self.joint = bool(self._options["multivariate"])

    def _make_sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        options: dict[str, Any] = {**self._options, "n_startup_trials": 0}  # start-up is the tuner's
        if self.joint and self.space.is_conditional:
            options["group"] = True
        return TPESampler(seed=seed, **options)
