"""``cma_es`` after a restart: the same distribution, without telling it all generations again."""

from __future__ import annotations

import json
import random
from typing import Any

import cmaes
import numpy as np
import pytest

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners import cma_es, cma_state
from tuner_service.tuners.cma_es import CmaEsTuner

NUMBERS = parse_search_space({f"x{n}": {"type": "float", "low": -1, "high": 1} for n in range(4)})
MIXED = parse_search_space(
    {
        "option": {"type": "categorical", "choices": ["a", "b", "c"]},
        "x": {"type": "float", "low": 0, "high": 1},
        "n": {"type": "int", "low": 0, "high": 9, "when": {"option": "b"}},
    }
)
CHOICES = parse_search_space({name: {"type": "categorical", "choices": list("abcd")} for name in "pqrs"})


def a_tuner(space: Any = NUMBERS, **options: float) -> CmaEsTuner:
    return CmaEsTuner(space, Objective(metric="loss"), population_size=5, **options)  # type: ignore[arg-type]  # floats


def loss_of(parameters: Parameters) -> float:
    return sum(float(value) ** 2 for value in parameters.values() if isinstance(value, int | float))


def ask(tuner: CmaEsTuner, number: int) -> Parameters:
    suggested = tuner.suggest(number, random.Random(number))
    assert isinstance(suggested, dict)
    return suggested


def search(tuner: CmaEsTuner, numbers: range) -> list[Parameters]:
    found = []
    for number in numbers:
        found.append(ask(tuner, number))
        tuner.pending(number, found[-1])
        outcome = TrialOutcome(
            number=number, status=TrialStatus.SUCCEEDED, parameters=found[-1], value=loss_of(found[-1])
        )
        tuner.observe(outcome)
    return found


def restarted(tuner: CmaEsTuner, **options: float) -> CmaEsTuner:
    another = a_tuner(tuner.space, **options)
    another.load_state_dict(json.loads(json.dumps(tuner.state_dict(), allow_nan=False)))
    return another


@pytest.mark.parametrize("space", [NUMBERS, MIXED, CHOICES], ids=["numbers", "mixed", "choices"])
def test_a_snapshot_after_any_trial_makes_the_same_suggestions(space: Any) -> None:
    tuner = a_tuner(space)
    search(tuner, range(1, 400))
    for number in range(400, 430):
        assert ask(restarted(tuner), number) == ask(tuner, number)
        search(tuner, range(number, number + 1))
    loaded = restarted(tuner)
    assert search(loaded, range(430, 480)) == search(tuner, range(430, 480))


def test_a_search_that_converged_and_began_again_goes_on_from_a_snapshot() -> None:
    tuner = a_tuner(sigma=1e-12)
    search(tuner, range(1, 500))
    assert 0 < tuner._optimizer.generation < tuner._generations
    assert search(restarted(tuner, sigma=1e-12), range(500, 520)) == search(tuner, range(500, 520))


def test_everything_of_the_optimizer_is_as_it_was_to_the_last_bit() -> None:
    tuner = a_tuner()
    search(tuner, range(1, 100))
    written, read = (vars(one._optimizer) for one in (tuner, restarted(tuner)))
    assert written.keys() == read.keys()
    for name in written.keys() - {"_rng"}:
        one, other = written[name], read[name]
        if isinstance(one, np.ndarray):
            assert (one.shape, one.dtype, one.flags.c_contiguous) == (
                other.shape,
                other.dtype,
                other.flags.c_contiguous,
            )
            assert one.tobytes() == other.tobytes(), name
        else:
            assert one == other, name


@pytest.mark.parametrize("space", [NUMBERS, CHOICES], ids=["numbers", "choices"])
def test_a_restart_tells_no_generation_again(monkeypatch: pytest.MonkeyPatch, space: Any) -> None:
    tuner = a_tuner(space)
    search(tuner, range(1, 203))
    told: list[int] = []
    ranked = CmaEsTuner._ranked
    monkeypatch.setattr(cmaes.CMA, "tell", lambda *_: pytest.fail("it was told again"))
    monkeypatch.setattr(CmaEsTuner, "_ranked", lambda self, place: told.append(place) or ranked(self, place))

    ask(restarted(tuner), 203)

    assert told == [39]  # whose better half options are drawn by


@pytest.mark.parametrize(("name", "value"), [("WIDEST_KEPT", 3), ("maker", lambda: "another version")])
def test_without_the_distribution_all_generations_are_told_again(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    tuner = a_tuner()
    search(tuner, range(1, 100))
    expected, state = ask(tuner, 100), json.dumps(tuner.state_dict())
    if name == "WIDEST_KEPT":
        monkeypatch.setattr(cma_es, name, value)
        state = json.dumps(tuner.state_dict())
        assert json.loads(state)["derived"] == {}
    else:
        monkeypatch.setattr(cma_state, name, value)
    loaded = a_tuner()
    loaded.load_state_dict(json.loads(state))
    assert ask(loaded, 100) == expected


def test_a_space_that_changed_begins_from_what_lies_in_it() -> None:
    tuner = a_tuner()
    search(tuner, range(1, 60))
    narrower = parse_search_space({f"x{n}": {"type": "float", "low": -0.5, "high": 1} for n in range(4)})
    tuner.update_search_space(narrower)
    search(tuner, range(60, 80))
    loaded = a_tuner(narrower)
    loaded.load_state_dict(json.loads(json.dumps(tuner.state_dict())))
    assert search(loaded, range(80, 100)) == search(tuner, range(80, 100))
