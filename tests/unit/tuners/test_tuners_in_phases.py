"""A trial that goes on with other parameters: every tuner stays what its history makes it."""

from __future__ import annotations

import json
import random

import pytest

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Tuner, snapshot_of
from tuner_service.tuners.registry import TUNERS, create_tuner
from tuner_service.tuners.tpe import TpeTuner

SPACE = parse_search_space({"x": {"_type": "quniform", "_value": [0, 40, 1]}, "y": {"type": "bool"}})
OBJECTIVE = Objective(metric="loss")


def a_tuner(name: str) -> Tuner:
    points = [SPACE.sample(random.Random(number)) for number in range(60)]
    args = {"tpe": {"n_startup_trials": 3}, "batch": {"parameters": points}}.get(name, {})
    return create_tuner(name, args, space=SPACE, objective=OBJECTIVE)


def ended(number: int, parameters: Parameters) -> TrialOutcome:
    value = (parameters["x"] - 10) ** 2 + parameters["y"]
    return TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value)


def live_through(tuner: Tuner, trials: int) -> None:
    """Trials of three phases each; of every other one the second phase gave the value."""
    for number in range(1, trials + 1):
        given = []
        for index in range(3):
            suggestion = tuner.suggest(number, suggestion_generator(1, number, index))
            assert isinstance(suggestion, dict)
            tuner.pending(number, suggestion)
            given.append(suggestion)
        tuner.observe(ended(number, given[1 + number % 2]))


@pytest.mark.parametrize("name", sorted(TUNERS))
def test_no_parameters_are_proposed_twice_and_a_snapshot_goes_on_as_the_tuner_itself(name: str) -> None:
    tuner, copy = a_tuner(name), a_tuner(name)
    live_through(tuner, 8)
    copy.load_state_dict(json.loads(json.dumps(snapshot_of(tuner))))  # type: ignore[attr-defined]  # ours all have it

    asked = [(n, suggestion_generator(1, n)) for n in range(9, 14)]
    again = [(n, suggestion_generator(1, n)) for n in range(9, 14)]
    for (number, rng), (_, same) in zip(asked, again, strict=True):
        suggestion, expected = copy.suggest(number, same), tuner.suggest(number, rng)
        assert suggestion == expected
        assert isinstance(suggestion, dict)
        tuner.pending(number, suggestion)
        copy.pending(number, suggestion)


def test_tpe_models_the_parameters_that_gave_the_value_and_no_others() -> None:
    tuner = a_tuner("tpe")
    assert isinstance(tuner, TpeTuner)
    live_through(tuner, 6)
    tuner.suggest(7, random.Random(1))
    states = [note.state for note in tuner.notes]
    assert (states.count("finished"), states.count("running")) == (6, 0)
    finished = [note for note in tuner.notes if note.state == "finished"]
    assert [note.values[0] for note in finished] == [ended(note.number, note.parameters).value for note in finished]
