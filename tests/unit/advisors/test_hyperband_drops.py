"""However many trials a rung of ``hyperband`` gives up, no decision gives up more than one may."""

from __future__ import annotations

import random

import pytest

from tuner_service.advisors import hyperband
from tuner_service.advisors.base import Promote, Start
from tuner_service.advisors.hyperband import Hyperband
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Decision, DecisionKind, Report


def test_the_losers_of_a_large_rung_are_given_up_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperband, "DROPPED_LIMIT", 4)
    space = parse_search_space({"x": {"type": "float", "low": 0, "high": 1}})
    advisor = Hyperband(space, Objective(metric="loss"), max_step=9)
    for number in range(1, 10):
        choice = advisor.suggest(number, random.Random(number))
        assert isinstance(choice, Start)
        advisor.decided(Decision(kind=DecisionKind.START, number=number, parameters=choice.parameters))
    for number in range(1, 10):
        advisor.rested(number, [Report(step=1, value=float(number))])

    dropped = []
    for number in range(1, 4):
        choice = advisor.suggest(10, random.Random(0))
        assert isinstance(choice, Promote)
        assert choice.trial == number
        dropped.append(choice.dropped)
        advisor.decided(Decision(kind=DecisionKind.PROMOTE, number=number, dropped=choice.dropped))
    assert dropped == [(4, 5, 6, 7), (8, 9), ()]
