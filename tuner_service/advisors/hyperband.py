"""``hyperband``: brackets of successive halving, each with another trade of many trials against long ones.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", 2018. A bracket starts a number
of trials at its first rung; when all of them rest there, the best portion goes on to the next, and the others are given
up. While a bracket waits for its trials the next one begins, so that no place stays empty. After the last kind of
bracket comes the first again, until the budget is used up; then unfinished brackets are finished with what they have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tuner_service.advisors.base import DROPPED_LIMIT, Choice, Promote, Start
from tuner_service.advisors.rungs import Result, Rung, RungAdvisor, loss_in, loss_out
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, DecisionKind, Parameters, Report, TrialOutcome
from tuner_service.tuners.base import NotYet


@dataclass(slots=True, kw_only=True)
class _Bracket:
    """``first``: the height at which its trials rest first. ``running``: how many run towards each height."""

    first: int
    size: int
    started: int = 0
    rungs: list[Rung] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    promoted: list[int] = field(default_factory=list)  # from each height


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where a trial is; ``result`` while it rests there."""

    bracket: int
    height: int
    result: Result | None = None


class Hyperband(RungAdvisor):
    def __init__(self, space: SearchSpace, objective: Objective, **rungs: int) -> None:
        super().__init__(space, objective, **rungs)
        self._brackets: dict[int, _Bracket] = {}  # by a number that goes on, oldest first
        self._begun = 0  # brackets
        self._places: dict[int, _Place] = {}

    # ── what runs next ──────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Choice:
        for bracket in self._brackets.values():
            for height in reversed(range(bracket.first, len(self._levels))):
                promotion = self._promotion(bracket, height, closing=not number)
                if promotion is not None:
                    return promotion
        if not number:
            return NotYet()
        first = self._open_bracket().first
        parameters = self._draws.likely(lambda generator: self.propose(number, generator, first), rng)
        return Start(parameters=parameters, until_step=self._until(first))

    def propose(self, number: int, rng: random.Random, first: int) -> Parameters:  # noqa: ARG002  # for subclasses
        """Parameters for a new trial, which runs to the height ``first``; asked again where it would likely fail."""
        return self._draws.drawn(rng)

    def _promotion(self, bracket: _Bracket, height: int, *, closing: bool) -> Promote | None:
        rung = bracket.rungs[height]
        if not rung.waiting or not self._is_full(bracket, height, closing=closing):
            return None
        allowed = self._allowed(rung)
        best = rung.best_among(allowed) if bracket.promoted[height] < allowed else None
        if best is None:
            return None
        losers: tuple[int, ...] = ()
        if not closing:  # a raised budget may let more trials come to this rung
            beaten = (number for result, number in rung.waiting if (result, number) > rung.results[allowed - 1])
            losers = tuple(islice(beaten, DROPPED_LIMIT))  # the others with the next promotion
        return Promote(trial=best[1], until_step=self._until(height + 1), dropped=losers)

    def _is_full(self, bracket: _Bracket, height: int, *, closing: bool) -> bool:
        """Whether every trial that will ever rest there does."""
        if any(bracket.running[lower] for lower in range(bracket.first, height + 1)):
            return False
        if bracket.started < bracket.size and not closing:
            return False
        below = range(bracket.first, height)
        return all(self._is_spent(bracket, lower) for lower in below)

    def _is_spent(self, bracket: _Bracket, height: int) -> bool:
        """Whether nothing more is promoted from there."""
        rung = bracket.rungs[height]
        allowed = self._allowed(rung)
        return bracket.promoted[height] >= allowed or rung.best_among(allowed) is None

    def _allowed(self, rung: Rung) -> int:
        return max(1, len(rung.results) // self._factor) if rung.results else 0

    def _open_bracket(self) -> _Bracket:
        """The newest, or one that ``decided`` is about to begin."""
        newest = self._brackets.get(self._begun)
        return newest if newest is not None and newest.started < newest.size else self._new_bracket()

    def _new_bracket(self) -> _Bracket:
        """First the one with the most trials; last the one whose trials all run to their end."""
        kinds = len(self._levels) + 1
        first = self._begun % kinds
        halvings = kinds - 1 - first
        size = math.ceil(kinds / (halvings + 1) * self._factor**halvings)
        return _Bracket(
            first=first,
            size=size,
            rungs=[Rung() for _ in self._levels],
            running=[0] * kinds,
            promoted=[0] * kinds,
        )

    # ── what happens ────────────────────────────────────────────────────────────────────────────
    def decided(self, decision: Decision) -> None:
        for number in decision.dropped:
            dropped = self._places[number]
            if dropped.result is not None:
                self._brackets[dropped.bracket].rungs[dropped.height].take(dropped.result)
        if decision.kind is DecisionKind.PROMOTE:
            place = self._places[decision.number]
            bracket = self._brackets[place.bracket]
            if place.result is not None:
                bracket.rungs[place.height].take(place.result)
            bracket.promoted[place.height] += 1
            place.height, place.result = place.height + 1, None
        else:
            bracket = self._open_bracket()
            if self._brackets.get(self._begun) is not bracket:
                self._begun += 1
                self._brackets[self._begun] = bracket
            bracket.started += 1
            place = self._places[decision.number] = _Place(bracket=self._begun, height=bracket.first)
            self._draws.begun(decision.number, decision.parameters or {})
            self.proposed(decision.number, decision.parameters or {})
        bracket.running[place.height] += 1
        self.entered(decision.number, place.height)

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        place = self._places[trial]
        bracket = self._brackets[place.bracket]
        bracket.running[place.height] -= 1
        value = reports[-1].value if reports else None
        place.result = (self.loss_of(value), trial)
        bracket.rungs[place.height].add(place.result, waits=True)
        self._draws.rested(trial)
        self.measured(trial, place.height, value)

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        self._draws.ended(outcome)
        place = self._places.pop(outcome.number, None)
        if place is None:
            self.imported(outcome)
            return
        bracket = self._brackets[place.bracket]
        if place.result is not None:
            bracket.rungs[place.height].take(place.result)
        else:
            bracket.running[place.height] -= 1
            self.measured(outcome.number, place.height, outcome.value, own_failure=outcome.own_failure)
            if place.height < len(self._levels) and outcome.value is not None:
                result = (self.loss_of(outcome.value), outcome.number)
                bracket.rungs[place.height].add(result, waits=False)
        self.left(outcome.number)
        is_done = bracket.started == bracket.size and not any(p.bracket == place.bracket for p in self._places.values())
        if is_done:
            del self._brackets[place.bracket]

    # ── for those that learn what to propose ────────────────────────────────────────────────────
    def proposed(self, trial: int, parameters: Parameters) -> None:
        """The trial begins with these."""

    def entered(self, trial: int, height: int) -> None:
        """The trial runs towards this height."""

    def measured(self, trial: int, height: int, value: float | None, *, own_failure: bool = False) -> None:
        """What the trial reached there; None where it failed, by its own doing or not."""

    def left(self, trial: int) -> None:
        """The trial has ended."""

    def imported(self, outcome: TrialOutcome) -> None:
        """The end of a trial that a person added, or a result from elsewhere."""

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        return {
            "version": 1,
            "begun": self._begun,
            "brackets": [
                {
                    "number": number,
                    "first": bracket.first,
                    "size": bracket.size,
                    "started": bracket.started,
                    "rungs": [rung.state() for rung in bracket.rungs],
                    "running": list(bracket.running),
                    "promoted": list(bracket.promoted),
                }
                for number, bracket in self._brackets.items()
            ],
            "places": [
                [number, place.bracket, place.height, None if place.result is None else [loss_out(place.result[0])]]
                for number, place in self._places.items()
            ],
            "draws": self._draws.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._begun = state["begun"]
        self._brackets = {
            told["number"]: _Bracket(
                first=told["first"],
                size=told["size"],
                started=told["started"],
                rungs=[Rung.restored(rung) for rung in told["rungs"]],
                running=list(told["running"]),
                promoted=list(told["promoted"]),
            )
            for told in state["brackets"]
        }
        self._places = {
            number: _Place(
                bracket=bracket, height=height, result=None if rested is None else (loss_in(rested[0]), number)
            )
            for number, bracket, height, rested in state["places"]
        }
        self._draws.restore(state["draws"])
