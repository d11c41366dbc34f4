"""Rungs: the steps at which trials rest and are compared, and the results of one rung."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import Any

from tuner_service.advisors.base import Advisor
from tuner_service.advisors.draws import Draws
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters

Result = tuple[float, int]  # (loss, trial): the better first, of equals the older


def levels(min_step: int, max_step: int, reduction_factor: int) -> tuple[int, ...]:
    """The steps of the rungs below ``max_step``; a trial that is promoted from the last runs to its end."""
    steps = []
    step = min_step
    while step < max_step:
        steps.append(step)
        step *= reduction_factor
    return tuple(steps)


class RungAdvisor(Advisor):
    """What those have in common whose trials rest at rungs: the steps of these, and the parameters drawn so far."""

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        min_step: int = 1,
        max_step: int = 81,
        reduction_factor: int = 3,
    ) -> None:
        super().__init__(space, objective)
        self._factor = reduction_factor
        self._levels = levels(min_step, max_step, reduction_factor)
        self._draws = Draws(space)

    def added(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._draws.add(parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._draws.move_to(space)

    def _until(self, height: int) -> int | None:
        """The step to which a trial runs to rest at ``height``; None beyond the last rung: to its end."""
        return self._levels[height] if height < len(self._levels) else None


class Rung:
    """Sorted results. ``waiting`` are those of trials that rest there and were not promoted.

    Adding, removing and asking for the next to be promoted cost a logarithm of the number of results, but for the
    moving of entries of a list in memory.
    """

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.waiting: list[Result] = []

    def add(self, result: Result, *, waits: bool) -> None:
        insort(self.results, result)
        if waits:
            insort(self.waiting, result)

    def take(self, result: Result) -> None:
        """The trial does not wait any more, because it goes on or has ended; it stays a result."""
        place = bisect_left(self.waiting, result)
        if place < len(self.waiting) and self.waiting[place] == result:
            del self.waiting[place]

    def best_among(self, count: int) -> Result | None:
        """The best that waits, where it is among the ``count`` best results and is a number."""
        if not self.waiting or math.isinf(self.waiting[0][0]):
            return None
        best = self.waiting[0]
        return best if bisect_left(self.results, best) < count else None

    def state(self) -> dict[str, Any]:
        return {"results": _written(self.results), "waiting": _written(self.waiting)}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Rung:
        rung = cls()
        rung.results, rung.waiting = _read(state["results"]), _read(state["waiting"])
        return rung


def _written(results: list[Result]) -> list[list[float | int | None]]:
    return [[loss_out(loss), number] for loss, number in results]


def _read(state: list[list[Any]]) -> list[Result]:
    return [(loss_in(loss), number) for loss, number in state]


def loss_out(loss: float) -> float | None:
    """As JSON holds it."""
    return None if math.isinf(loss) else loss


def loss_in(loss: float | None) -> float:
    return math.inf if loss is None else loss
