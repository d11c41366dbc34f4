"""``auto`` finds what random draws do not, says what it does, and goes on from a snapshot as it would have."""

from __future__ import annotations

import json
import math
from typing import Any

from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.auto import PROCESS_TRIALS, STARTUP, AutoTuner

SPACE: dict[str, Any] = {
    "x": {"type": "float", "low": 0, "high": 1},
    "kind": {"type": "categorical", "choices": ["a", "b", "c"]},
    "y": {"type": "float", "low": 0, "high": 1, "when": {"kind": ["a", "b"]}},
}


def loss(parameters: Parameters) -> float:
    offset = {"a": 0.0, "b": 0.3, "c": 0.5}[parameters["kind"]]
    return offset + (parameters["x"] - 0.7) ** 2 + (parameters.get("y", 0.5) - 0.2) ** 2


def a_tuner(goal: Goal = Goal.MINIMIZE) -> AutoTuner:
    return AutoTuner(parse_search_space(SPACE), Objective(metric="loss", goal=goal))


def searched(tuner: AutoTuner, trials: int, *, first: int = 1, sign: float = 1.0) -> list[Parameters]:
    found = []
    for number in range(first, first + trials):
        parameters = tuner.suggest(number, suggestion_generator(3, number))
        assert isinstance(parameters, dict)
        tuner.pending(number, parameters)
        tuner.observe(ended(number, parameters, sign * loss(parameters)))
        found.append(parameters)
    return found


def ended(number: int, parameters: Parameters, value: float) -> TrialOutcome:
    return TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value)


def test_it_finds_the_minimum_of_a_conditional_space_within_thirty_trials() -> None:
    assert min(map(loss, searched(a_tuner(), 30))) < 0.01


def test_it_maximises_what_is_to_be_maximised() -> None:
    assert min(map(loss, searched(a_tuner(Goal.MAXIMIZE), 30, sign=-1.0))) < 0.01


def test_a_snapshot_goes_on_as_the_search_itself_does() -> None:
    tuner = a_tuner()
    searched(tuner, 14)
    other = a_tuner()
    other.load_state_dict(json.loads(json.dumps(tuner.state_dict())))
    assert searched(other, 4, first=15) == searched(tuner, 4, first=15)


def test_results_that_are_no_numbers_do_not_let_a_fit_depend_on_when_it_was_asked_for() -> None:
    told = [{"x": place / 27, "kind": "ab"[place % 2], "y": 0.5} for place in range(27)]
    outcomes = [ended(number, parameters, loss(parameters)) for number, parameters in enumerate(told, start=1)]
    outcomes[2], outcomes[26] = ended(3, told[2], math.nan), ended(27, told[26], 100.0)
    asked_before, rebuilt = a_tuner(), a_tuner()
    for tuner in (asked_before, rebuilt):
        for outcome in outcomes[:26]:
            tuner.observe(outcome)
    asked_before.suggest(27, suggestion_generator(3, 27))  # of 26 results the next fit is made, which is one of 28, too
    for tuner in (asked_before, rebuilt):
        tuner.observe(outcomes[26])
    generators = (suggestion_generator(3, 28), suggestion_generator(3, 28))
    assert asked_before.suggest(28, generators[0]) == rebuilt.suggest(28, generators[1])


def test_it_says_what_it_does_and_why() -> None:
    tuner = a_tuner()
    assert tuner.choice.startswith(f"random: the first {STARTUP} results")
    searched(tuner, 12)
    assert tuner.choice.startswith("gp")
    tuner.import_results([ended(0, {"x": 0.5, "kind": "c"}, 1.0)] * PROCESS_TRIALS)
    assert tuner.choice.startswith("tpe: 312 results")


def test_trials_that_were_stopped_early_count_as_what_they_were() -> None:
    tuner = a_tuner()
    for number, parameters in enumerate([{"x": place / 12, "kind": "c"} for place in range(12)], start=1):
        stopped = TrialOutcome(
            number=number,
            status=TrialStatus.EARLY_STOPPED,
            parameters=parameters,
            value=loss(parameters) + 1.0,
            step=1 + number % 3,
        )
        tuner.observe(stopped)
    parameters = tuner.suggest(13, suggestion_generator(3, 13))
    assert isinstance(parameters, dict)
    assert tuner.choice.startswith("gp")


def test_with_two_objectives_it_spreads_along_the_front() -> None:
    objective = Objective(metric="a", further=(Objective(metric="b"),))
    tuner = AutoTuner(parse_search_space({"x": SPACE["x"], "y": SPACE["x"]}), objective)
    on_front = []
    for number in range(1, 31):
        parameters = tuner.suggest(number, suggestion_generator(1, number))
        assert isinstance(parameters, dict)
        tuner.pending(number, parameters)
        values = (parameters["x"] + parameters["y"], 1.0 - parameters["x"] + parameters["y"])
        outcome = TrialOutcome(
            number=number,
            status=TrialStatus.SUCCEEDED,
            parameters=parameters,
            value=values[0],
            further_values=(values[1],),
        )
        tuner.observe(outcome)
        if number > 10 and parameters["y"] < 0.05:
            on_front.append(parameters["x"])
    assert max(on_front) - min(on_front) > 0.5
