"""Which parameters make trials fail: what those that failed by their own doing teach any algorithm.

An algorithm that draws its points weighs each draw by the probability that its trial succeeds (``likely``); one that
looks for the largest expected improvement adds the logarithm of that probability to that of the improvement. As long as
nothing has failed nothing is asked and no random number is drawn, so that such a search is as if this were not there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters

if TYPE_CHECKING:
    from tuner_service.tuners.model_columns import Rows
    from tuner_service.tuners.model_search import Acquisition
    from tuner_service.tuners.model_success import SuccessModel

SHARPNESS = 2  # the power of the probability with which a draw is kept: a failure costs more than another draw
DRAWS = 8  # weighed one after the other; then the likeliest of them is taken


class Chances:
    """Made from what was told, in its order; the model only once it is asked for."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._told: list[tuple[Parameters, bool]] = []
        self._failures = 0
        self._model: SuccessModel | None = None
        self._modelled = 0  # of what was told

    def tell(self, parameters: Parameters, *, succeeded: bool) -> None:
        """A trial inside the space succeeded, or failed by its own doing."""
        self._told.append((parameters, succeeded))
        self._failures += not succeeded

    @property
    def matter(self) -> bool:
        """Whether anything has failed, so that there is something to be weighed."""
        return self._failures > 0

    @property
    def told(self) -> str:
        """For people."""
        return f"{self._failures} of {len(self._told)} trials failed, and where they would is avoided"

    def weighed(self, acquisition: Acquisition, *, known: Rows, is_logarithm: bool = True) -> Acquisition:
        """As ``SuccessModel`` has it, on rows of ``Columns(space)``; as it is while nothing has failed."""
        if not self.matter:
            return acquisition
        return self._known().weighed(acquisition, known=known, is_logarithm=is_logarithm)

    def likely(self, draw: Callable[[random.Random], Parameters], rng: random.Random) -> Parameters:
        """One of what ``draw`` gives, kept the more likely the more likely its trial succeeds."""
        if not self.matter:
            return draw(rng)
        best: tuple[float, Parameters] | None = None
        for _ in range(DRAWS):
            parameters = draw(rng)
            chance = self._chance_of(parameters)
            if rng.random() < chance**SHARPNESS:
                return parameters
            if best is None or chance > best[0]:
                best = chance, parameters
        assert best is not None  # noqa: S101  # there is one draw at least
        return best[1]

    def _chance_of(self, parameters: Parameters) -> float:
        model = self._known()
        row = model.columns.encode(parameters)
        return 0.0 if row is None else math.exp(float(model.log_probability(row[None])[0]))

    def _known(self) -> SuccessModel:
        """Imported late: most searches never need it."""
        if self._model is None:
            from tuner_service.tuners.model_columns import Columns
            from tuner_service.tuners.model_success import SuccessModel

            self._model = SuccessModel(Columns(self._space))
        for parameters, succeeded in self._told[self._modelled :]:
            row = self._model.columns.encode(parameters)
            if row is not None:
                self._model.add(row, succeeded=succeeded)
        self._modelled = len(self._told)
        return self._model
