"""``cma_es``: a normal distribution that moves to where outcomes are better, and takes their shape.

Hansen, "The CMA Evolution Strategy: A Tutorial", 2016; the update is that of the package ``cmaes``, which Optuna's
sampler wraps. Optuna keeps its state in the trials that were suggested; here it follows from the outcomes: every
``population_size`` trials that ended with a value, in the order in which they ended, are one generation. A snapshot
holds the distribution to its last bit (``cma_state``), so that a search goes on as it would have.

Numbers are coordinates of the unit cube. A choice has none: it is drawn from how often its options occur among the
better half of the newest generation, each option counted once more than that.
"""

from __future__ import annotations

import random
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import losses
from tuner_service.domain.ranges import Choice, Parameter, Range
from tuner_service.domain.search_space import Flat, SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.model_tuner import ModelTuner
from tuner_service.tuners.trial_notes import FINISHED, TrialNote

FAR = float("inf")
LEAST_SIZE = 4  # of a generation, as Hansen recommends for one coordinate, and here for none
WIDEST_KEPT = 1_000  # coordinates, of which a snapshot has ten million bytes
RESTART_SEED = 1_000_003  # times the generation: where a search that has converged begins again


class CmaEsTuner(ModelTuner):
    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        population_size: int = 0,
        sigma: float = 1 / 6,
        n_startup_trials: int = 1,
    ) -> None:
        """``population_size`` 0: as Hansen recommends for the number of coordinates."""
        super().__init__(space, objective, startup=n_startup_trials)
        self._wanted_size, self._sigma = population_size, sigma
        self._forget()

    def _forget(self) -> None:
        """It is told all generations again, some milliseconds each, when it is asked next, or loads a snapshot."""
        self._optimizer: Any = None
        self._generations = 0  # of trials that were told
        self._elite: list[Flat] = []
        self._columns = _numbers(self.space)

    def _derived_state(self) -> dict[str, Any]:
        if not self._generations:
            return {}
        if self._optimizer is None:
            return {"generations": self._generations}
        if len(self._columns) > WIDEST_KEPT:
            return {}
        from tuner_service.tuners import cma_state

        optimizer = cma_state.written(self._optimizer)
        return {} if optimizer is None else {"generations": self._generations, "optimizer": optimizer}

    def _load_derived(self, state: dict[str, Any]) -> None:
        """Where it says nothing of use, the generations are told again."""
        if not state:
            return
        if self._columns:
            from tuner_service.tuners import cma_state

            optimizer = self._new_optimizer([0.5] * len(self._columns))
            if not cma_state.read(optimizer, state["optimizer"]):
                return
            self._optimizer = optimizer
        self._generations = state["generations"]
        self._take_elite(self._ranked(self._generations - 1))

    def _propose(self, rng: random.Random) -> Parameters:
        self._catch_up()
        if self._optimizer is None:
            return self._drawn(None, rng)
        self._optimizer.reseed_rng(rng.getrandbits(32))
        return self._drawn(self._optimizer.ask(), rng)

    def _drawn(self, coordinates: Any, rng: random.Random) -> Parameters:
        point = [0.5] * self.space.dimension
        for place, column in enumerate(self._columns):
            point[column] = min(max(float(coordinates[place]), 0.0), 1.0)
        whole = tuple(point)

        def choose(path: str, range_: Range) -> Any:
            if isinstance(range_, Choice):
                return self._option(path, len(range_.options), rng)
            return self.space.decode_one(path, range_, whole)

        return self.space.build(choose)

    def _option(self, path: str, count: int, rng: random.Random) -> int:
        weights = [1] * count
        for flat in self._elite:
            if path in flat:
                weights[flat[path]] += 1
        return rng.choices(range(count), weights)[0]

    def _catch_up(self) -> None:
        """Tell whole generations that have ended since."""
        if self._optimizer is None and self._columns:
            self._optimizer = self._new_optimizer([0.5] * len(self._columns))
        while (self._generations + 1) * self._size <= len(self.modelled):
            ranked = self._ranked(self._generations)
            self._generations += 1
            self._take_elite(ranked)
            if self._optimizer is None:
                continue
            self._optimizer.tell([(self._coordinates(note), float(rank)) for rank, note in enumerate(ranked)])
            if self._optimizer.should_stop():
                start = random.Random(self._generations * RESTART_SEED)  # noqa: S311  # a search, not a secret
                self._optimizer = self._new_optimizer([start.random() for _ in self._columns])

    @property
    def _size(self) -> int:
        """Of a generation. There is no optimizer where all parameters are choices."""
        size: int = self._wanted_size or LEAST_SIZE if self._optimizer is None else self._optimizer.population_size
        return size

    def _ranked(self, generation: int) -> list[TrialNote]:
        first = generation * self._size
        return sorted(self.modelled[first : first + self._size], key=self._rank)

    def _take_elite(self, ranked: list[TrialNote]) -> None:
        better = [self.space.flatten(note.parameters) for note in ranked[: (self._size + 1) // 2]]
        self._elite = [flat for flat in better if flat is not None]

    def _new_optimizer(self, mean: list[float]) -> Any:
        import numpy as np
        from cmaes import CMA

        bounds = np.array([[0.0, 1.0]] * len(mean))
        size = self._wanted_size or None
        return CMA(mean=np.array(mean), sigma=self._sigma, bounds=bounds, population_size=size, seed=0)

    def _rank(self, note: TrialNote) -> tuple[bool, float]:
        loss = losses(self.objective, note.values)
        return note.state != FINISHED, FAR if loss is None else loss[0]

    def _coordinates(self, note: TrialNote) -> Any:
        """What is not there stands at the mean, and so moves nothing."""
        import numpy as np

        flat, point = self.space.flatten(note.parameters) or {}, self.space.encode(note.parameters) or ()
        there = self.space.columns_of(flat)
        mean = self._optimizer.mean
        return np.array([point[c] if c in there else mean[i] for i, c in enumerate(self._columns)])


def _ranges(parameters: tuple[Parameter, ...]) -> list[tuple[str, Range]]:
    found: list[tuple[str, Range]] = []
    for parameter in parameters:
        found.append((parameter.path, parameter.range))
        if isinstance(parameter.range, Choice):
            for option in parameter.range.options:
                found += _ranges(option.branch or ())
    return found


def _numbers(space: SearchSpace) -> list[int]:
    """The columns of the unit cube that hold numbers which can move."""
    return sorted(
        column
        for path, range_ in _ranges(space.parameters)
        if not isinstance(range_, Choice) and range_.size > 1
        for column in space.columns_of({path: None})
    )
