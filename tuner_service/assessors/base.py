"""What every assessor promises, ours and users' own."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome


@dataclass(frozen=True, slots=True)
class Keep:
    """Let the trial run on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the trial; ``message`` tells people why, with the numbers that decided it."""

    message: str


Verdict = Keep | Stop


class Assessor(ABC):
    """Judges running trials. Built as ``Class(objective, **args)``, args being those of the experiment.

    A verdict must be a function of what the assessor was told, in order, and of nothing else: no clock, no
    randomness, no file. Calls come one at a time. In a deterministic experiment a trial is judged by a ``fork``,
    made when the trial was decided, which is told of no other trial; the assessor itself is told of a trial when it
    has ended: first (where ``learns_while_assessing``) ``assess`` for each of its reports, then ``ended``.

    ``state_dict() -> dict`` and ``load_state_dict(state)``, both or neither, are optional: with them, in plain JSON
    values, a restart folds only what came after the newest snapshot; without, everything.
    """

    learns_while_assessing: ClassVar[bool] = True  # False: ``assess`` changes nothing that later verdicts depend on

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    @abstractmethod
    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        """Called after each report of trial number ``trial`` with all of them so far; the last one is new.

        ``reports`` can be read, indexed and sliced, not changed. A value may be NaN or infinite. After a Stop the
        trial is not asked about again.
        """

    @abstractmethod
    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        """A trial ended; told once. ``reports`` are those it was judged by; after a Stop there are no more."""

    def fork(self) -> Self:
        """An assessor that judges as this one does now, whatever either is told from here on."""
        return copy.deepcopy(self)
