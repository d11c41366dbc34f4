from __future__ import annotations

import math
import random
import time

import pytest

from tuner_service.domain.errors import InputError
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, Tuner, snapshot_of
from tuner_service.tuners.proposed import ProposedParameters
from tuner_service.tuners.registry import TUNERS, check_tuner_args, create_tuner

BOWL = {f"x{i}": {"_type": "uniform", "_value": [-5, 5]} for i in range(4)}


def a_tuner(name: str, space: dict, goal: Goal = Goal.MINIMIZE, **args: object) -> Tuner:
    return create_tuner(name, args, space=parse_search_space(space), objective=Objective(metric="m", goal=goal))


def best_of(name: str, *, goal: Goal, seed: int, spoiled: bool = False) -> float:
    """The smallest bowl value found in 60 trials; ``spoiled``: one half of the bowl gives NaN."""
    tuner, best = a_tuner(name, BOWL, goal), math.inf
    for number in range(1, 61):
        parameters = tuner.suggest(number, suggestion_generator(seed, number))
        assert isinstance(parameters, dict)
        tuner.pending(number, parameters)
        bowl = sum(value**2 for value in parameters.values())
        value = bowl if goal is Goal.MINIMIZE else -bowl
        if spoiled and parameters["x0"] > 0:
            value = math.nan
        else:
            best = min(best, bowl)
        tuner.observe(TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value))
    return best


@pytest.mark.parametrize("goal", list(Goal))
def test_tpe_finds_better_parameters_than_random_draws(goal: Goal) -> None:
    tpe = sorted(best_of("tpe", goal=goal, seed=seed) for seed in range(5))
    drawn = sorted(best_of("random", goal=goal, seed=seed) for seed in range(5))
    assert tpe[2] < drawn[2]


def test_tpe_leaves_the_region_whose_values_are_nan() -> None:
    assert sorted(best_of("tpe", goal=Goal.MINIMIZE, seed=seed, spoiled=True) for seed in range(3))[1] < 5


def test_tpe_takes_what_stopped_early_at_a_later_step_for_better() -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    tuner = a_tuner("tpe", space, n_startup_trials=5)
    rng = random.Random(0)
    for number in range(1, 41):
        x = rng.random()
        tuner.pending(number, {"x": x})
        tuner.observe(
            TrialOutcome(
                number=number, status=TrialStatus.EARLY_STOPPED, parameters={"x": x}, value=1.0, step=int(100 * x)
            )
        )
    asked = [tuner.suggest(100 + i, random.Random(i)) for i in range(10)]
    assert sorted(parameters["x"] for parameters in asked if isinstance(parameters, dict))[5] > 0.7


def test_tpe_keeps_away_from_what_still_runs() -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    tuner = a_tuner("tpe", space)
    for number in range(1, 31):
        x = number / 31
        tuner.pending(number, {"x": x})
        tuner.observe(
            TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={"x": x}, value=abs(x - 0.5))
        )
    found = []
    for number in range(31, 41):
        parameters = tuner.suggest(number, random.Random(1))
        assert isinstance(parameters, dict)
        tuner.pending(number, parameters)
        found.append(parameters["x"])
    assert len(set(found)) == 10


def test_tpe_takes_a_choice_of_many_options_as_one_of_few() -> None:
    def asked(options: int) -> float:
        space = {
            "c": {"type": "categorical", "choices": list(range(options))},
            "x": {"type": "float", "low": 0, "high": 1},
        }
        tuner, rng = a_tuner("tpe", space), random.Random(0)
        for number in range(1, 301):
            parameters = tuner.space.sample(rng)
            outcome = TrialOutcome(
                number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=rng.random()
            )
            tuner.observe(outcome)
        begun = time.process_time()
        assert isinstance(tuner.suggest(301, random.Random(1)), dict)
        return time.process_time() - begun

    asked(10)  # what has to be imported
    assert asked(20_000) < 2


def test_cma_es_draws_options_by_the_better_half_in_a_space_of_choices_alone_too() -> None:
    options = [f"option {place}" for place in range(40)]
    tuner = a_tuner("cma_es", {name: {"type": "categorical", "choices": options} for name in "ab"}, population_size=30)
    for number in range(1, 31):
        good = number % 2
        parameters = {"a": options[0] if good else options[1], "b": options[number]}
        tuner.observe(
            TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=float(not good))
        )
    asked = [tuner.suggest(31, random.Random(seed)) for seed in range(200)]
    drawn = [parameters["a"] for parameters in asked if isinstance(parameters, dict)]
    assert drawn.count(options[0]) > 5 * drawn.count(options[1])


def test_the_grid_goes_in_order_and_ends() -> None:
    tuner = a_tuner("grid", {"a": {"type": "bool"}, "b": {"_type": "uniform", "_value": [0, 1]}}, points=3)
    seen = []
    for number in range(1, 7):
        parameters = tuner.suggest(number, random.Random(number))
        assert isinstance(parameters, dict)
        tuner.pending(number, parameters)
        seen.append((parameters["a"], parameters["b"]))
    assert seen == [(False, 0.0), (False, 0.5), (False, 1.0), (True, 0.0), (True, 0.5), (True, 1.0)]
    assert isinstance(tuner.suggest(7, random.Random(7)), Exhausted)


def test_the_grid_of_a_wider_space_leaves_out_what_was_run() -> None:
    tuner = a_tuner("grid", {"a": {"_type": "randint", "_value": [0, 2]}})
    for number in (1, 2):
        tuner.pending(number, {"a": number - 1})
    tuner.update_search_space(parse_search_space({"a": {"_type": "randint", "_value": [0, 3]}}))
    assert tuner.suggest(3, random.Random(3)) == {"a": 2}


def test_random_repeats_only_when_nothing_else_is_left() -> None:
    tuner = a_tuner("random", {"a": {"_type": "randint", "_value": [0, 1000]}})
    for number in range(1, 1000):
        tuner.pending(number, {"a": number})
    assert tuner.suggest(1000, random.Random(1)) == {"a": 0}
    tuner.pending(1000, {"a": 0})
    assert isinstance(tuner.suggest(1001, random.Random(1)), dict)


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    faults = check_tuner_args("tpe", {"n_startup": 3, "n_ei_candidates": 0, "multivariate": 1})
    assert {fault.pointer for fault in faults} == {"/args/n_startup", "/args/n_ei_candidates", "/args/multivariate"}
    assert "n_startup_trials" in faults[0].message
    assert "tpe" in check_tuner_args("tpee", {})[0].message
    assert check_tuner_args("grid", [])[0].pointer == "/args"


def test_every_registered_tuner_takes_its_options_at_their_defaults() -> None:
    for name, algorithm in TUNERS.items():
        args = {option.name: option.default for option in algorithm.options if not option.is_required}
        args |= {"parameters": [dict.fromkeys(BOWL, 0.5)]} if name == "batch" else {}
        assert not check_tuner_args(name, args)
        assert snapshot_of(a_tuner(name, BOWL, **args)) is not None
    with pytest.raises(InputError):
        a_tuner("grid", BOWL, point=3)


@pytest.mark.parametrize("name", ["random", "grid"])
def test_where_no_outcome_is_needed_none_changes_a_suggestion(name: str) -> None:
    found = []
    for sign in (1, -1):
        tuner = a_tuner(name, BOWL)
        assert not tuner.needs_outcomes
        suggested = []
        for number in range(1, 21):
            parameters = tuner.suggest(number, suggestion_generator(7, number))
            assert isinstance(parameters, dict)
            tuner.pending(number, parameters)
            value = sign * float(number)
            tuner.observe(TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value))
            suggested.append(parameters)
        found.append(suggested)

    assert found[0] == found[1]


def test_a_number_that_is_written_otherwise_counts_the_same_before_and_after_a_restart() -> None:
    space = parse_search_space({"a": {"type": "int", "low": 1, "high": 1}})
    proposed, restored = ProposedParameters(space), ProposedParameters(space)
    proposed.add({"a": 1.0})
    restored.restore(proposed.keys())
    assert proposed.fills_the_space == restored.fills_the_space == proposed.moved_to(space).fills_the_space


def test_a_grid_goes_on_after_a_restart_where_it_was() -> None:
    """It does not go through all that was run before once more."""
    space = {f"x{place}": {"type": "int", "low": 0, "high": 9} for place in range(4)}
    tuner, loaded = a_tuner("grid", space), a_tuner("grid", space)
    for number in range(1, 1_200):
        tuner.pending(number, tuner.suggest(number, random.Random(0)))  # type: ignore[arg-type]  # there are more
    looked: list[int] = []
    looks = loaded.space._grid(10).look
    loaded.space._grid(10).look = lambda index, **known: looked.append(index) or looks(index, **known)  # type: ignore[method-assign]
    loaded.load_state_dict(tuner.state_dict())  # type: ignore[attr-defined]  # ours have both
    assert loaded.suggest(1_200, random.Random(0)) == tuner.suggest(1_200, random.Random(0))
    assert len(looked) < 10
