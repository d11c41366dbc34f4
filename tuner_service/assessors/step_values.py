"""What assessors compare with: of each step the values of the trials that ended well, sorted."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from typing import Self

STEP_LIMIT = 10_000  # different steps that values are kept for; at later ones no trial is stopped


class StepValues:
    """Eight bytes a value: 800 MB for 10,000 trials of 10,000 steps.

    None can be left out: each may be the median once others have come. A fork shares the lists; who adds to one that
    another may have makes a copy of it first, and no second one: copies of all of them would take as much again.
    """

    def __init__(self) -> None:
        self._lists: dict[int, array[float]] = {}
        self._own: set[int] | None = set()  # the steps whose lists nobody else has; None: even the dict is shared

    def at(self, step: int) -> array[float] | None:
        """Sorted; None where there are none."""
        return self._lists.get(step)

    def add(self, values: Mapping[int, float]) -> None:
        """Of one trial, by its steps."""
        if self._own is None:
            self._lists, self._own = dict(self._lists), set()
        for step, value in values.items():
            known = self._lists.get(step)
            if known is None and len(self._lists) >= STEP_LIMIT:
                continue
            if known is None or step not in self._own:
                known = self._lists[step] = array("d", known or ())
                self._own.add(step)
            insort(known, value)

    def fork(self) -> Self:
        """The values as they are now, whatever is added to either."""
        forked = type(self)()
        forked._lists, forked._own, self._own = self._lists, None, None  # noqa: SLF001  # of its own class
        return forked

    def state(self, write: Callable[[float], float | None]) -> list[list[object]]:
        return [[step, list(map(write, values))] for step, values in self._lists.items()]

    def load(self, state: Iterable[tuple[int, list[float | None]]], read: Callable[[float | None], float]) -> None:
        self._lists = {step: array("d", map(read, values)) for step, values in state}
        self._own = set(self._lists)
