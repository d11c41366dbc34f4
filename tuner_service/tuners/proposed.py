"""The parameters that were proposed or observed, so that none is proposed twice while the space has others."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable

from tuner_service.domain.search_space import SearchSpace, parameters_key
from tuner_service.domain.trial import Parameters

SCAN_LIMIT = 10_000  # points of a finite space looked at for a new one; then a repetition is accepted


class ProposedParameters:
    """A set of parameters, equal ones counted once. Grows with the number of trials only."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._keys: dict[str, None] = {}
        self._inside = 0

    def __contains__(self, parameters: Parameters) -> bool:
        return parameters_key(parameters) in self._keys

    def add(self, parameters: Parameters) -> None:
        key = parameters_key(parameters)
        if key not in self._keys:
            self._keys[key] = None
            self._inside += self._counts(key)

    @property
    def fills_the_space(self) -> bool:
        return self._inside >= self._space.size

    def keys(self) -> list[str]:
        """For a snapshot."""
        return list(self._keys)

    def restore(self, keys: Iterable[str]) -> None:
        """What ``keys()`` gave, in place of what is there."""
        self._keys = dict.fromkeys(keys)
        self._inside = sum(map(self._counts, self._keys))

    def moved_to(self, space: SearchSpace) -> ProposedParameters:
        """The same parameters, counted in another space."""
        moved = ProposedParameters(space)
        moved.restore(self._keys)
        return moved

    def _counts(self, key: str) -> bool:
        """Whether it is a point of a finite space; of an infinite one nobody asks.

        By its key, from which 1 and 1.0 come back as the same: the count is that of a snapshot at any time.
        """
        return self._space.size != math.inf and self._space.contains(json.loads(key))

    def unproposed(self, rng: random.Random) -> Parameters | None:
        """A point of a finite space that is not here, from a random place on; None if none was found."""
        size = self._space.size
        if self.fills_the_space or size == float("inf"):
            return None
        total = self._space.grid_size(1)
        start = rng.randrange(total)
        for step in range(min(total, SCAN_LIMIT)):
            # A finite space has no continuous parameter, so its grid is all of it.
            point = self._space.grid_point((start + step) % total, 1)
            if point is not None and point not in self:
                return point
        return None
