"""What failed trials teach: where others would fail, and nothing where they say nothing of their parameters."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners import chances as chances_module
from tuner_service.tuners.base import Tuner
from tuner_service.tuners.chances import Chances
from tuner_service.tuners.model_columns import Columns
from tuner_service.tuners.model_success import SuccessModel
from tuner_service.tuners.registry import create_tuner

SPACE = parse_search_space(
    {
        "batch": {"type": "float", "low": 0, "high": 1000},
        "lr": {"type": "float", "low": 0, "high": 1},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
    }
)
MODELS = [("auto", {}), ("tpe", {}), ("cma_es", {}), ("nsga2", {"population_size": 8}), ("evolution", {})]


def a_model(fails: Any, *, trials: int = 60) -> SuccessModel:
    model, columns = SuccessModel(Columns(SPACE)), Columns(SPACE)
    rng = random.Random(1)
    for number in range(trials):
        row = columns.encode(parameters := SPACE.sample(rng))
        assert row is not None
        model.add(row, succeeded=not fails(parameters, number))
    return model


def chance(model: SuccessModel, parameters: Parameters) -> float:
    row = model.columns.encode(parameters)
    assert row is not None
    return math.exp(float(model.log_probability(row[None])[0]))


def test_a_region_in_which_trials_fail_is_told_from_the_rest() -> None:
    model = a_model(lambda parameters, _: parameters["batch"] > 700)
    for lr in (0.1, 0.5, 0.9):
        assert chance(model, {"batch": 300.0, "lr": lr, "kind": "a"}) > 0.9
        assert chance(model, {"batch": 900.0, "lr": lr, "kind": "b"}) < 0.2


def test_an_option_with_which_trials_fail_is_told_from_the_others() -> None:
    model = a_model(lambda parameters, _: parameters["kind"] == "b")
    assert chance(model, {"batch": 500.0, "lr": 0.4, "kind": "a"}) > 0.9
    assert chance(model, {"batch": 500.0, "lr": 0.4, "kind": "b"}) < 0.2


def test_failures_that_strike_anywhere_make_no_region() -> None:
    model = a_model(lambda _, number: number % 4 == 0, trials=100)
    found = np.exp(model.log_probability(Columns(SPACE).random(200, np.random.default_rng(2))))
    assert np.quantile(found, 0.95) - np.quantile(found, 0.05) < 0.3
    assert 0.6 < np.median(found) < 0.95


def test_what_is_believed_does_not_depend_on_when_somebody_asked() -> None:
    asked_always, asked_last = SuccessModel(Columns(SPACE)), SuccessModel(Columns(SPACE))
    rng, rows = random.Random(4), Columns(SPACE).random(20, np.random.default_rng(3))
    for _ in range(40):
        row = Columns(SPACE).encode(parameters := SPACE.sample(rng))
        assert row is not None
        for model in (asked_always, asked_last):
            model.add(row, succeeded=parameters["batch"] < 600)
        asked_always.log_probability(rows)
    assert asked_always.log_probability(rows).tolist() == asked_last.log_probability(rows).tolist()


def test_many_trials_cost_no_more_than_some_hundred() -> None:
    model = a_model(lambda parameters, _: parameters["batch"] > 900, trials=2_000)
    assert chance(model, {"batch": 950.0, "lr": 0.5, "kind": "a"}) < 0.3
    assert chance(model, {"batch": 300.0, "lr": 0.5, "kind": "a"}) > 0.9


def test_where_everything_failed_draws_go_on() -> None:
    learned = Chances(SPACE)
    rng = random.Random(1)
    for _ in range(5):
        learned.tell(SPACE.sample(rng), succeeded=False)
    assert SPACE.contains(learned.likely(SPACE.sample, rng))


# ── in searches ─────────────────────────────────────────────────────────────────────────────────
def suggested(name: str, args: dict[str, Any], *, told: Any, trials: int = 30) -> list[Parameters]:
    """A search, whose trials end as ``told`` says."""
    tuner = create_tuner(name, args, space=SPACE, objective=Objective(metric="loss"))
    found = []
    for number in range(1, trials + 1):
        parameters = tuner.suggest(number, random.Random(number))
        assert isinstance(parameters, dict)
        found.append(parameters)
        tuner.pending(number, parameters)
        tuner.observe(told(number, parameters))
    return found


def succeeded(number: int, parameters: Parameters) -> TrialOutcome:
    value = parameters["batch"] / 1000 + parameters["lr"]
    return TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value)


def lost(number: int, parameters: Parameters) -> TrialOutcome:
    if number % 5:
        return succeeded(number, parameters)
    return TrialOutcome(number=number, status=TrialStatus.FAILED, parameters=parameters, value=None)


@pytest.mark.parametrize(("name", "args"), MODELS)
@pytest.mark.parametrize("told", [succeeded, lost])
def test_a_search_in_which_no_trial_failed_by_its_own_doing_asks_no_model_of_success(
    name: str, args: dict[str, Any], told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = suggested(name, args, told=told)

    class Unused(Chances):
        def likely(self, draw: Any, rng: random.Random) -> Parameters:
            parameters: Parameters = draw(rng)
            return parameters

        def weighed(self, acquisition: Any, **_: Any) -> Any:
            return acquisition

    monkeypatch.setattr("tuner_service.tuners.model_tuner.Chances", Unused)
    monkeypatch.setattr(chances_module.Chances, "_known", lambda _: pytest.fail("a model of success was asked"))
    assert suggested(name, args, told=told) == usual


@pytest.mark.parametrize(("name", "args"), MODELS)
def test_a_search_keeps_away_from_where_its_trials_fail(name: str, args: dict[str, Any]) -> None:
    def told(number: int, parameters: Parameters) -> TrialOutcome:
        if parameters["batch"] < 700:
            value = abs(parameters["batch"] - 400) / 1000 + parameters["lr"]
            return TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=value)
        return TrialOutcome(
            number=number, status=TrialStatus.FAILED, parameters=parameters, value=None, own_failure=True
        )

    found = suggested(name, args, told=told, trials=60)
    assert sum(parameters["batch"] >= 700 for parameters in found[30:]) <= 4


def test_failures_come_back_with_a_space_that_holds_them() -> None:
    smaller = parse_search_space({"x": {"type": "float", "low": 0, "high": 0.5}})
    larger = parse_search_space({"x": {"type": "float", "low": 0, "high": 1}})
    tuner = create_tuner("tpe", {}, space=larger, objective=Objective(metric="loss"))
    for number, x in enumerate((0.1, 0.2, 0.7, 0.9), start=1):
        failed = TrialStatus.FAILED if x > 0.5 else TrialStatus.SUCCEEDED
        value = None if x > 0.5 else x
        tuner.observe(TrialOutcome(number=number, status=failed, parameters={"x": x}, value=value, own_failure=x > 0.5))
    tuner.update_search_space(smaller)
    assert not chances_of(tuner).matter
    tuner.update_search_space(larger)
    assert chances_of(tuner).matter


def chances_of(tuner: Tuner) -> Chances:
    found = vars(tuner)["_chances"]
    assert isinstance(found, Chances)
    return found
