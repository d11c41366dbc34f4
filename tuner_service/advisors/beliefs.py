"""What the advisor ``auto`` believes of the points it was told, and how far it trusts that."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np

from tuner_service.advisors.courses import Point
from tuner_service.tuners.model_columns import Columns, stacked
from tuner_service.tuners.model_surrogate import Belief, Points, Surrogate, finite, fitted_at

TRUSTED = 0.6  # rank correlation of predicted and true losses, below which some trials are drawn at random
TRUST_POINTS = 128  # the newest trials by which that is judged
LEAST_TRUST_POINTS = 15  # of fewer nothing can be said


class Beliefs:
    """Keeps the last answers only to save time: they depend on the points alone.

    ``points``: in the order in which they became known, all inside the space; ``longest``: the most reports of one.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._surrogate = Surrogate(columns.unordered)
        self._believed: tuple[object, Belief] | None = None
        self._trusted: tuple[object, float | None] | None = None

    def copied(self) -> Beliefs:
        """One that is asked about these points and further ones of its own, and keeps what is known of these."""
        other = copy.copy(self)
        other._surrogate = copy.copy(self._surrogate)  # noqa: SLF001  # of its own class
        return other

    def belief(self, points: Sequence[Point], *, longest: int) -> Belief:
        key = (len(points), longest)
        if self._believed is None or self._believed[0] != key:
            self._believed = (key, self._surrogate.believe(self._told(points, longest), key=longest))
        return self._believed[1]

    def trust(self, points: Sequence[Point], *, longest: int) -> float | None:
        """How well the model predicts the first loss of each trial from those of all others: a rank correlation.

        Judged anew whenever the model is fitted anew; None as long as nothing can be said.
        """
        key = (fitted_at(len(points)), longest)
        if self._trusted is None or self._trusted[0] != key:
            self._trusted = (key, self._judged(points[: key[0]], longest))
        return self._trusted[1]

    def is_trusted(self, points: Sequence[Point], *, longest: int) -> bool:
        trust = self.trust(points, longest=longest)
        return trust is not None and trust >= TRUSTED

    def _judged(self, points: Sequence[Point], longest: int) -> float | None:
        first: dict[int, Point] = {}
        for point in points:
            first.setdefault(id(point.course), point)
        shown = list(first.values())[-TRUST_POINTS:]
        if len(shown) < LEAST_TRUST_POINTS:
            return None
        rows = stacked([p.course.row for p in shown if p.course.row is not None], self._columns.width)
        losses = finite([p.loss for p in shown])
        return self._surrogate.trust_in(rows, losses, by=self._told(points, longest), key=longest)

    def _told(self, points: Sequence[Point], longest: int) -> Points:
        """A report is as far as its logarithmic share of the longest trial."""
        most = math.log(max(longest, 2))
        reach = [1.0 if p.is_end else math.log(p.count) / most for p in points]
        rows = stacked([p.course.row for p in points if p.course.row is not None], self._columns.width)
        return Points(rows=rows, reach=np.array(reach), losses=np.array([p.loss for p in points]))
