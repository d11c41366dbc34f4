"""``gp``: Bayesian optimisation with a Gaussian process, through Optuna's sampler or through BoTorch.

Optuna: Matérn 5/2 kernel with a length scale for each parameter; log expected improvement (Ament and others,
"Unexpected Improvements to Expected Improvement for Bayesian Optimization", 2023); trials that run are integrated over.
Several objectives: log expected hypervolume improvement (Daulton, Balandat and Bakshy, 2020). BoTorch (``backend:
botorch``, the extra of that name): for many objectives, and on a GPU where there is one.

The cost of a fit grows with the cube of the trials, so past ``THINNING.limit`` of them it is shown some.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import warnings
from typing import Any

from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.optuna_tuner import OptunaTuner
from tuner_service.tuners.trial_notes import RUNNING, Thinning

THINNING = Thinning(limit=250, keep=150, refresh=50)
FINEST_VALUES = 1_000_000.0  # of one discrete range: Optuna's sampler looks at each of them
OPTUNA, BOTORCH = "optuna", "botorch"


class GpTuner(OptunaTuner):
    thinning = THINNING
    several_objectives = True
    of_whole = True
    finest = FINEST_VALUES
    constrained = True
    proposes_likely = True  # asking again would cost a fit, and give the same maximum
    model_redraws = 1  # the next maximum of the same model is likely the same point

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        n_startup_trials: int = 10,
        deterministic_objective: bool = False,
        backend: str = OPTUNA,
    ) -> None:
        super().__init__(space, objective, startup=max(n_startup_trials, 1))  # there is no process of no points
        self._deterministic_objective = deterministic_objective
        self._backend = backend
        if backend == BOTORCH:
            _botorch_model()  # so that its absence is told at the start, not in the middle of a search

    def _make_sampler(self, seed: int) -> Any:
        from optuna.samplers import GPSampler

        return GPSampler(
            seed=seed,
            n_startup_trials=0,
            deterministic_objective=self._deterministic_objective,
            warn_independent_sampling=False,
        )

    def _propose(self, rng: random.Random) -> Parameters:
        if self._backend == OPTUNA:
            return super()._propose(rng)
        shown = self._shown()  # failures as a little worse than the worst
        running = [note.parameters for note in self.notes if note.state == RUNNING]
        proposed: Parameters = _botorch_model().propose(
            self.space, self.objective, shown, running, seed=rng.getrandbits(32)
        )
        return proposed


def _botorch_model() -> Any:
    if importlib.util.find_spec("botorch") is None:
        why = "backend botorch needs the package: pip install 'tuner-service[botorch]'"
        raise SearchSpaceNotSupportedError("gp", "backend", why)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses what newer versions of torch call deprecated
        return importlib.import_module("tuner_service.tuners.botorch_model")
