"""What one run of one method on one task gave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a run: trials at a time, and either trials in all or simulated seconds, after which nothing counts.

    ``begun``: trials that may begin, failed ones included, which use up none of ``trials``.
    """

    workers: int
    trials: int | None = None
    horizon_s: float | None = None
    begun: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """``values``: the objectives after ``epoch`` epochs of trial ``trial``, known at ``at`` simulated seconds."""

    at: float
    trial: int
    epoch: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``own_s``: wall seconds spent in the algorithms; ``choice``: what ``auto`` said it chose.

    ``failed``: the numbers of the trials that failed; ``processor_s``: as ``own_s``, without what others made it wait.
    """

    evaluations: list[Evaluation]
    trials: int
    own_s: float
    suggest_s: float
    choice: str
    failed: tuple[int, ...] = ()
    processor_s: float = 0.0
