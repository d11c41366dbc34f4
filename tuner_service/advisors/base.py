"""What every advisor promises, ours and users' own: one algorithm that is tuner and assessor, and schedules trials."""

from __future__ import annotations

import copy
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from tuner_service.assessors.base import Keep, Stop
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome
from tuner_service.tuners.base import Exhausted, NotYet

DROPPED_LIMIT = 10_000  # trials that one decision ends; more are the advisor's fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A new trial, that rests at the first report of ``until_step`` or a later step; None: it runs to its end.

    ``dropped``, here and below: numbers of trials that rest and that nothing will come of; they are ended.
    """

    parameters: Parameters
    until_step: int | None = None
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """``trial``, which rests, goes on from its own newest checkpoint."""

    trial: int
    until_step: int | None = None
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A new trial goes on with other parameters from the checkpoint that ``trial`` rested with last.

    ``trial`` has rested at least once and has not ended; it may be running on meanwhile.
    """

    trial: int
    parameters: Parameters
    until_step: int | None = None
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Let the trial rest now; ``message`` tells people why."""

    message: str


Choice = Parameters | Start | Promote | Fork | NotYet | Exhausted
Judgement = Keep | Stop | Pause


class Advisor(ABC):
    """Decides which trial runs next and how far. Built as ``Class(space, objective, **args)``.

    What it answers must be a function of (rng, number, what it was told, in order) and of nothing else: no clock, no
    generator of its own, no file. Calls come one at a time, in journal order. It may raise
    SearchSpaceNotSupportedError (the experiment fails) and TemporarilyUnableError (asked again, a bounded number of
    times); anything else pauses the experiment.

    ``state_dict() -> dict`` and ``load_state_dict(state)``, both or neither, are optional: with them, in plain JSON
    values, a restart folds only what came after the newest snapshot; without, everything.

    A class that defines ``assess`` judges running trials too. In a deterministic experiment a trial is then judged by
    a ``fork``, made when it was decided how far it runs, which is told of no other trial; the advisor itself is told of
    the reports when the trial rests or ends.
    """

    learns_while_assessing: ClassVar[bool] = True  # False: ``assess`` changes nothing that later answers depend on
    # True: parameters may lie outside the space. Otherwise such a choice pauses the experiment, as an error does.
    may_leave_space: ClassVar[bool] = False
    experiment_seed: int = 0  # set before the first call, for what must be the same in all answers of a search

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        self.space = space
        self.objective = objective

    @abstractmethod
    def suggest(self, number: int, rng: random.Random) -> Choice:
        """Which trial runs next. Must not change the advisor: ``decided`` tells it what was accepted.

        ``number`` is that of a new trial, and 0 where the budget has room for none: then only a Promote, NotYet or
        Exhausted can be answered. NotYet: asked again when a trial has rested or ended. Exhausted: nothing more will
        ever run, not even one that rests.
        """

    @abstractmethod
    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        """The trial has come to where it was to run, and can be promoted. ``reports``: its own, up to there."""

    @abstractmethod
    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        """A trial ended, also one that was dropped; told once. ``value`` may be None, NaN or infinite."""

    def decided(self, decision: Decision) -> None:  # noqa: B027  # optional, does nothing
        """This is what runs: answered here, now or before a restart. Its ``number`` names the trial."""

    def added(self, number: int, parameters: Parameters) -> None:  # noqa: B027  # optional, does nothing
        """A person chose the parameters of trial ``number``, which runs to its end."""

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:  # noqa: ARG002  # for those that judge
        """Called after each report of a running trial with all of them so far; the last one is new."""
        return Keep()

    def import_results(self, outcomes: Sequence[TrialOutcome]) -> None:
        """Results from elsewhere; their number is 0."""
        for outcome in outcomes:
            self.ended(outcome, ())

    def update_search_space(self, space: SearchSpace) -> None:
        """From here on, propose inside ``space``. What was told before may lie outside it."""
        self.space = space

    def fork(self) -> Self:
        """An advisor that judges as this one does now, whatever either is told from here on."""
        return copy.deepcopy(self)

    @property
    def judges(self) -> bool:
        return type(self).assess is not Advisor.assess

    def loss_of(self, value: float | None) -> float:
        """The value with the sign that makes smaller better; infinity for what is no number."""
        if value is None or not math.isfinite(value):
            return math.inf
        return -value if self.objective.goal is Goal.MAXIMIZE else value
