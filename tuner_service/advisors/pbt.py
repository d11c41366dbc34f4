"""``pbt``: population based training.

Jaderberg et al., "Population Based Training of Neural Networks", 2017. Every ``interval`` steps a trial rests and is
compared with the newest values of the others. One of the worst ``quantile`` is given up, and a fork takes its place:
it goes on from the checkpoint of one of the best, with parameters that are changed a little (times 0.8 or 1.2) or drawn
anew. The others go on as they are. The trial with the fewest steps is the next to run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner_service.advisors.base import Advisor, Choice, Fork, Promote, Start
from tuner_service.advisors.draws import Draws
from tuner_service.advisors.rungs import loss_in, loss_out
from tuner_service.domain.experiment import Objective
from tuner_service.domain.ranges import Choice as ChoiceRange
from tuner_service.domain.ranges import FloatRange, IntRange, NormalRange, QuantizedRange, Range
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, DecisionKind, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, NotYet

_Change = Callable[[Range, Any], Any]  # a value for a range; None: there was none

PERTURBATIONS = (0.8, 1.2)
CHANGES_TRIED = 20  # before a change that a constraint forbids is left out


@dataclass(slots=True, kw_only=True)
class Member:
    """``loss`` is None before it has rested; ``step`` is where it rested last, or what it was forked at."""

    parameters: Parameters
    step: int = 0
    loss: float | None = None
    rests: bool = False


class Pbt(Advisor):
    def __init__(  # noqa: PLR0913  # its options, by keyword
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        population_size: int = 10,
        interval: int = 5,
        max_step: int = 100,
        quantile: float = 0.25,
        explored: str = "",
        resample_probability: float = 0.25,
    ) -> None:
        super().__init__(space, objective)
        self._size, self._interval, self._max_step = population_size, interval, max_step
        self._quantile, self._resample = quantile, resample_probability
        self._explored = frozenset(name.strip() for name in explored.split(",") if name.strip())
        self._members: dict[int, Member] = {}
        self._begun = 0  # members that were not forked
        self._lost = 0  # members that failed, and have no fork in their place yet
        self._draws = Draws(space)

    # ── what runs next ──────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Choice:
        if number and self._begun < self._size:
            return Start(parameters=self._draws.draw(rng), until_step=self._until(0))
        if number and self._lost:
            return self._in_place_of_lost(rng)
        resting = [(member.step, trial) for trial, member in self._members.items() if member.rests]
        if not resting:
            return NotYet() if self._members or self._lost else Exhausted()
        step, trial = min(resting)
        if number and trial in self._worst():
            sources = [source for source in self._best() if self._is_better(source, trial)]
            if sources:
                return self._fork(rng.choice(sources), rng, dropped=(trial,))
        return Promote(trial=trial, until_step=self._until(step))

    def _in_place_of_lost(self, rng: random.Random) -> Choice:
        sources = self._best()
        if sources:
            return self._fork(rng.choice(sources), rng, dropped=())
        return Start(parameters=self._draws.draw(rng), until_step=self._until(0))

    def _fork(self, source: int, rng: random.Random, *, dropped: tuple[int, ...]) -> Fork:
        member = self._members[source]
        return Fork(
            trial=source,
            parameters=self._draws.likely(lambda generator: self.explore(member, generator), rng),
            until_step=self._until(member.step),
            dropped=dropped,
        )

    def explore(self, source: Member, rng: random.Random) -> Parameters:
        """The parameters of a fork of ``source``."""
        for _ in range(CHANGES_TRIED):
            changed = self.changed(source.parameters, lambda range_, value: self._perturbed(range_, value, rng))
            if self.space.contains(changed):
                return changed
        return source.parameters if self.space.contains(source.parameters) else self._draws.draw(rng)

    def changed(self, parameters: Parameters, change: _Change) -> Parameters:
        """``parameters`` with a change of every explored one; of a space that has changed, drawn where they lack."""
        flat = self.space.fitting(parameters)

        def choose(path: str, range_: Range) -> Any:
            if path not in flat:
                return change(range_, None)
            return change(range_, flat[path]) if self.is_explored(path, range_) else flat[path]

        return self.space.build(choose)

    def is_explored(self, path: str, range_: Range) -> bool:
        if self._explored:
            return path in self._explored
        return isinstance(range_, FloatRange | IntRange | QuantizedRange | NormalRange)

    def _perturbed(self, range_: Range, value: Any, rng: random.Random) -> Any:
        resamples = rng.random() < self._resample
        factor = rng.choice(PERTURBATIONS)
        if value is None or resamples or isinstance(range_, ChoiceRange):
            return range_.sample(rng)
        return scaled(range_, value, factor)

    def _until(self, step: int) -> int | None:
        return step + self._interval if step + self._interval < self._max_step else None

    # ── the population ──────────────────────────────────────────────────────────────────────────
    def _ranked(self) -> list[int]:
        """Members with a value of their own, the best first."""
        known = [(member.loss, trial) for trial, member in self._members.items() if member.loss is not None]
        return [trial for _, trial in sorted(known)]

    def _portion(self, ranked: Sequence[int]) -> int:
        return min(len(ranked) // 2, math.ceil(len(ranked) * self._quantile))

    def _best(self) -> list[int]:
        ranked = self._ranked()
        count = self._portion(ranked) or min(1, len(ranked))
        return [trial for trial in ranked[:count] if not math.isinf(self._members[trial].loss or 0.0)]

    def _worst(self) -> list[int]:
        ranked = self._ranked()
        count = self._portion(ranked)
        return ranked[len(ranked) - count :] if count else []

    def _is_better(self, source: int, trial: int) -> bool:
        return loss_of_member(self._members[source]) < loss_of_member(self._members[trial])

    # ── what happens ────────────────────────────────────────────────────────────────────────────
    def decided(self, decision: Decision) -> None:
        if decision.kind is DecisionKind.PROMOTE:
            self._members[decision.number].rests = False
            return
        parameters = decision.parameters or {}
        self._draws.begun(decision.number, parameters)
        takes_place = self._begun >= self._size and not decision.dropped
        self._lost -= takes_place
        if decision.kind is DecisionKind.FORK and decision.forked_from is not None:
            step = self._members[decision.forked_from].step
            for dropped in decision.dropped:
                del self._members[dropped]
        else:
            step = 0
            self._begun += not takes_place
        self._members[decision.number] = Member(parameters=parameters, step=step)

    def added(self, number: int, parameters: Parameters) -> None:  # noqa: ARG002  # the port's signature
        self._draws.add(parameters)

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        member = self._members[trial]
        if reports:
            member.step = reports[-1].step
        member.loss = self.loss_of(reports[-1].value if reports else None)
        member.rests = True
        self._draws.rested(trial)

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:  # noqa: ARG002  # the port's signature
        self._draws.ended(outcome)
        member = self._members.pop(outcome.number, None)
        if member is not None and outcome.status is not TrialStatus.SUCCEEDED:
            self._lost += 1

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._draws.move_to(space)

    def state_dict(self) -> dict[str, Any]:
        members = [
            [number, m.parameters, m.step, None if m.loss is None else [loss_out(m.loss)], m.rests]
            for number, m in self._members.items()
        ]
        return {
            "version": 1,
            "members": members,
            "begun": self._begun,
            "lost": self._lost,
            "draws": self._draws.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._members = {
            number: Member(
                parameters=parameters, step=step, loss=None if loss is None else loss_in(loss[0]), rests=rests
            )
            for number, parameters, step, loss, rests in state["members"]
        }
        self._begun, self._lost = state["begun"], state["lost"]
        self._draws.restore(state["draws"])


def loss_of_member(member: Member) -> float:
    return math.inf if member.loss is None else member.loss


def scaled(range_: Range, value: Any, factor: float) -> Any:
    """``value`` times ``factor``, at the nearest place in the range; as it is where that cannot be said."""
    match range_:
        case FloatRange(step=None):
            return min(max(float(value) * factor, range_.low), range_.high)
        case FloatRange():
            wanted = min(max(float(value) * factor, range_.low), range_.high)
            return range_.value_at(range_.index_of(wanted))
        case IntRange():
            wanted = min(max(round(value * factor), range_.low), range_.high)
            place = (wanted - range_.low + range_.step // 2) // range_.step
            return range_.value_at(min(place, int(range_.size) - 1))
        case QuantizedRange():
            return range_.project(value * factor)
        case NormalRange(q=None):
            return float(value) * factor
        case NormalRange():
            return round(value * factor / (range_.q or 1.0)) * (range_.q or 1.0)
        case _:
            return value
