"""``bohb``: its models know a rung each, and still nothing is begun with twice."""

from __future__ import annotations

import random

import pytest

from tuner_service.advisors.base import Promote, Start
from tuner_service.advisors.bohb import Bohb
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parameters_key, parse_search_space
from tuner_service.domain.trial import Decision, DecisionKind, Parameters, Report, TrialOutcome, TrialStatus

SPACE = parse_search_space(
    {"a": {"type": "ordinal", "choices": [1, 2, 3, 4, 5]}, "b": {"type": "ordinal", "choices": [1, 2, 3, 4]}}
)


def loss(parameters: Parameters) -> float:
    return float(abs(parameters["a"] - 2) + abs(parameters["b"] - 3))


class _Search:
    """Trials one after the other: each rests or ends at once."""

    def __init__(self, seed: int) -> None:
        self.advisor = Bohb(SPACE, Objective(metric="loss"), max_step=3, min_results=2, random_fraction=0.0)
        self.begun: dict[int, Parameters] = {}
        self._rng = random.Random(seed)

    def start(self, count: int) -> None:
        while len(self.begun) < count:
            number = len(self.begun) + 1
            choice = self.advisor.suggest(number, self._rng)
            if isinstance(choice, Promote):
                self._decided(DecisionKind.PROMOTE, choice.trial, choice)
            else:
                assert isinstance(choice, Start)
                self.begun[number] = choice.parameters
                self._decided(DecisionKind.START, number, choice)

    def _decided(self, kind: DecisionKind, number: int, choice: Start | Promote) -> None:
        parameters = self.begun[number]
        self.advisor.decided(
            Decision(
                kind=kind,
                number=number,
                parameters=parameters if kind is DecisionKind.START else None,
                until_step=choice.until_step,
                dropped=choice.dropped,
            )
        )
        for dropped in choice.dropped:
            self._end(dropped, TrialStatus.EARLY_STOPPED)
        if choice.until_step is None:
            self._end(number, TrialStatus.SUCCEEDED)
        else:
            self.advisor.rested(number, [Report(step=choice.until_step, value=loss(parameters))])

    def _end(self, number: int, status: TrialStatus) -> None:
        parameters = self.begun[number]
        outcome = TrialOutcome(number=number, status=status, parameters=parameters, value=loss(parameters))
        self.advisor.ended(outcome, ())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_begun_with_twice_while_the_space_has_others(seed: int) -> None:
    search = _Search(seed)
    search.start(20)
    assert len({parameters_key(parameters) for parameters in search.begun.values()}) == SPACE.size == 20
    search.start(25)  # by then everything has been there
