"""Random draws that repeat nothing while the space has others: what advisors start trials with.

Once trials have failed by their own doing, draws are weighed by the probability that their trials succeed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.chances import Chances
from tuner_service.tuners.proposed import ProposedParameters

REDRAWS = 20  # before the rest of a finite space is looked through


@dataclass(slots=True, kw_only=True)
class _Running:
    """``place``: of its success among the outcomes, which it has once it has come to a rung."""

    parameters: Parameters
    place: int | None = None


class Draws:
    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._proposed = ProposedParameters(space)
        self._running: dict[int, _Running] = {}
        self._outcomes: list[tuple[Parameters, bool]] = []  # in the order told; whether the trial succeeded
        self.chances = Chances(space)

    def draw(self, rng: random.Random) -> Parameters:
        return self.likely(self.drawn, rng)

    def likely(self, draw: Callable[[random.Random], Parameters], rng: random.Random) -> Parameters:
        """One of what ``draw`` gives, whose trial is likely to succeed."""
        return self.chances.likely(draw, rng)

    def drawn(self, rng: random.Random) -> Parameters:
        """One draw, whatever its chances."""
        parameters = self._space.sample(rng)
        if parameters not in self._proposed or self._proposed.fills_the_space:
            return parameters
        for _ in range(REDRAWS):
            redrawn = self._space.sample(rng)
            if redrawn not in self._proposed:
                return redrawn
        return self._proposed.unproposed(rng) or parameters

    def is_new(self, parameters: Parameters) -> bool:
        """Whether it was neither drawn nor told of."""
        return parameters not in self._proposed

    @property
    def has_no_more(self) -> bool:
        """Whether the space has nothing else, so that all that comes has been there."""
        return self._proposed.fills_the_space

    def add(self, parameters: Parameters) -> None:
        self._proposed.add(parameters)

    # ── what becomes of them ────────────────────────────────────────────────────────────────────
    def begun(self, number: int, parameters: Parameters) -> None:
        self.add(parameters)
        self._running[number] = _Running(parameters=parameters)

    def rested(self, number: int) -> None:
        """To have come to a rung is a success, too, as long as the trial does not fail after it."""
        running = self._running.get(number)
        if running is not None and running.place is None:
            running.place = len(self._outcomes)
            self._note(running.parameters, succeeded=True)

    def ended(self, outcome: TrialOutcome) -> None:
        self.add(outcome.parameters)
        running = self._running.pop(outcome.number, None)
        place = None if running is None else running.place
        if outcome.own_failure and place is not None:
            self._outcomes[place] = (outcome.parameters, False)
            self._tell_again()
        elif outcome.own_failure:
            self._note(outcome.parameters, succeeded=False)
        elif place is None and outcome.status in {TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED}:
            self._note(outcome.parameters, succeeded=True)

    def _note(self, parameters: Parameters, *, succeeded: bool) -> None:
        self._outcomes.append((parameters, succeeded))
        if self._space.contains(parameters):
            self.chances.tell(parameters, succeeded=succeeded)

    def move_to(self, space: SearchSpace) -> None:
        self._space, self._proposed = space, self._proposed.moved_to(space)
        self._tell_again()

    def state(self) -> dict[str, Any]:
        running = [[number, one.parameters, one.place] for number, one in self._running.items()]
        return {
            "proposed": self._proposed.keys(),
            "outcomes": [list(one) for one in self._outcomes],
            "running": running,
        }

    def restore(self, state: Any) -> None:
        """What ``state()`` gave; before outcomes were kept that was the list of what was proposed alone."""
        told = state if isinstance(state, dict) else {"proposed": state, "outcomes": [], "running": []}
        self._proposed.restore(told["proposed"])
        self._outcomes = [(parameters, succeeded) for parameters, succeeded in told["outcomes"]]
        self._running = {number: _Running(parameters=one, place=place) for number, one, place in told["running"]}
        self._tell_again()

    def _tell_again(self) -> None:
        outcomes, self._outcomes, self.chances = self._outcomes, [], Chances(self._space)
        for parameters, succeeded in outcomes:
            self._note(parameters, succeeded=succeeded)
