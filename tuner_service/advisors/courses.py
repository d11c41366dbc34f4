"""What the advisor ``auto`` remembers of trials: their losses report by report, and who has passed which rung."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any

from tuner_service.advisors.rungs import loss_in, loss_out
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.model_columns import Rows


@dataclass(slots=True, kw_only=True, eq=False)
class Course:
    """Of one trial; ``losses`` after each of its reports, ``row`` None outside the space.

    ``is_whole``: its losses are of reports; false for one told of by its end alone, which is its only loss then.
    """

    number: int
    parameters: Parameters
    row: Rows | None
    losses: list[float] = field(default_factory=list)
    is_whole: bool = True

    def copied(self, *, row: Rows | None) -> Course:
        """One whose losses may grow on their own; ``row``: of its parameters, in another space perhaps."""
        return Course(
            number=self.number,
            parameters=self.parameters,
            row=row,
            losses=list(self.losses),
            is_whole=self.is_whole,
        )

    def to_plain(self) -> list[Any]:
        return [self.number, self.parameters, list(map(loss_out, self.losses)), self.is_whole]


def course_from_plain(plain: list[Any], row: Rows | None) -> Course:
    number, parameters, losses, is_whole = plain
    known = [loss_in(loss) for loss in losses]
    return Course(number=number, parameters=parameters, row=row, losses=known, is_whole=is_whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What the model is told: the loss of a trial after ``count`` reports, or at its end."""

    course: Course
    count: int
    loss: float
    is_end: bool


class Field:
    """Those that have passed one rung. Entering it and asking for a place in it cost a logarithm of their number, but
    for the moving of entries of a list in memory.
    """

    def __init__(self, count: int) -> None:
        self.count = count  # of reports, at which the rung is
        self.courses: list[Course] = []  # by the number of the trial
        self._losses: list[float] = []  # sorted

    def __len__(self) -> int:
        return len(self.courses)

    def enter(self, course: Course) -> None:
        insort(self.courses, course, key=_number)
        insort(self._losses, course.losses[self.count - 1])

    def ahead_of(self, course: Course) -> int:
        """How many have a smaller loss there."""
        return bisect_left(self._losses, course.losses[self.count - 1])

    def is_among_first(self, course: Course, portion: int) -> bool:
        """Whether it is one of the ``portion`` with the smallest numbers."""
        return len(self.courses) <= portion or course.number <= self.courses[portion - 1].number

    def newest(self, portion: int, course: Course) -> list[Course]:
        """The ``portion`` with the largest numbers, and ``course`` in any case."""
        found = self.courses[-portion:]
        return found if course in found else [*found, course]


def _number(course: Course) -> int:
    return course.number
