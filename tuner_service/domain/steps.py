"""The steps that a trial has reported, of which there may be millions."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Set


class Steps(Set[int]):
    """A set of steps. Those that came in ascending order, at one distance, take no more memory than one of them."""

    __slots__ = ("_count", "_distances", "_firsts", "_lasts", "_late")

    def __init__(self, steps: Iterable[int] = ()) -> None:
        """Quickest, and smallest, where they ascend."""
        # The runs, each behind the one before: 2, 4, 6 is first 2, last 6, distance 2.
        self._firsts, self._lasts, self._distances = array("q"), array("q"), array("q")
        self._late: set[int] = set()  # below the last of the runs, and in none of them
        self._count = 0
        for step in steps:
            self.add(step)

    def add(self, step: int) -> bool:
        """Whether it was not there before."""
        firsts, lasts, distances = self._firsts, self._lasts, self._distances
        if lasts and step <= lasts[-1]:
            if step in self:
                return False
            self._late.add(step)
        elif lasts and (step - lasts[-1] == distances[-1] or lasts[-1] == firsts[-1]):
            distances[-1] = step - lasts[-1]
            lasts[-1] = step
        else:
            firsts.append(step)
            lasts.append(step)
            distances.append(1)
        self._count += 1
        return True

    def upto(self, last: int) -> Steps:
        """Those that are not behind ``last``."""
        return Steps(step for step in self if step <= last)

    def __contains__(self, step: object) -> bool:
        if not isinstance(step, int):
            return False
        place = bisect_right(self._firsts, step) - 1
        if place >= 0 and step <= self._lasts[place] and (step - self._firsts[place]) % self._distances[place] == 0:
            return True
        return step in self._late

    def __iter__(self) -> Iterator[int]:
        for first, last, distance in zip(self._firsts, self._lasts, self._distances, strict=True):
            yield from range(first, last + 1, distance)
        yield from self._late

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        """Its runs, however long they are, and what came late."""
        runs = zip(self._firsts, self._lasts, self._distances, strict=True)
        return f"Steps({[range(first, last + 1, distance) for first, last, distance in runs]}, {sorted(self._late)})"
