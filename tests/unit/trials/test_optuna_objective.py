"""Objectives written for Optuna, run as trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.integrations.optuna import (
    ObjectiveTrial,
    ParameterMissingError,
    ParameterOutsideError,
    run,
    search_space,
)
from trials.session import Trial, open_trial
from trials.wire.encoding import decode_record
from trials.wire.records import MetricRecord

GIVEN = {"lr": 0.01, "layers": 3, "kind": "adam"}


def objective(trial: Any) -> float:
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    layers = trial.suggest_int("layers", 1, 9)
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    for step in range(2):
        trial.report(lr * layers + step, step)
    return float(lr * layers) if kind == "adam" else -1.0


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., Trial]:
    def make(**given: Any) -> Trial:
        (tmp_path / "parameters.json").write_text(json.dumps(given))
        variables = {"TUNER_ATTEMPT_DIR": str(tmp_path), "TUNER_EXPERIMENT_ID": "exp", "TUNER_TRIAL_NUMBER": "12"}
        return open_trial(environ={**variables, "TUNER_OBJECTIVE": "loss"}, arguments=[])

    return make


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.chdir(tmp_path)
    return open_trial(environ={}, arguments=[])


def reported(folder: Path) -> list[tuple[int | None, dict[str, float]]]:
    lines = (folder / "reports.jsonl").read_text().splitlines()
    records = [decode_record(line) for line in lines]
    return [(record.step, record.values) for record in records if isinstance(record, MetricRecord)]


def test_the_objective_gets_the_parameters_of_the_trial_and_its_value_is_the_result(
    attempt: Callable[..., Trial], tmp_path: Path
) -> None:
    assert run(objective, trial=attempt(**GIVEN)) == 0.03

    assert reported(tmp_path) == [(0, {"loss": 0.03}), (1, {"loss": 1.03}), (None, {"loss": 0.03})]


def test_numbers_count_from_0_as_in_optuna_and_params_hold_what_was_suggested(attempt: Callable[..., Trial]) -> None:
    with attempt(**GIVEN) as trial:
        seen = ObjectiveTrial(trial)
        objective(seen)

    assert seen.number == 11
    assert seen.params == GIVEN


def test_several_values_are_reported_by_the_names_given(attempt: Callable[..., Trial], tmp_path: Path) -> None:
    run(lambda trial: (1.0, 2.0), metrics=["loss", "size"], trial=attempt())

    assert reported(tmp_path) == [(None, {"loss": 1.0, "size": 2.0})]


def test_as_many_values_as_names_are_wanted(attempt: Callable[..., Trial]) -> None:
    with pytest.raises(ValueError, match="2 values for 1 metrics: loss"):
        run(lambda trial: (1.0, 2.0), trial=attempt())


def test_a_pruned_trial_ends_quietly_and_without_a_result(attempt: Callable[..., Trial], tmp_path: Path) -> None:
    class TrialPruned(Exception):  # noqa: N818  # as Optuna names it
        pass

    def pruned(trial: Any) -> float:
        trial.report(0.5, 0)
        raise TrialPruned

    assert run(pruned, trial=attempt()) is None
    assert reported(tmp_path) == [(0, {"loss": 0.5})]


def test_any_other_error_is_the_scripts_own(attempt: Callable[..., Trial]) -> None:
    with pytest.raises(ZeroDivisionError):
        run(lambda trial: 1 / 0, trial=attempt())


def test_should_prune_says_when_the_trial_is_to_end(attempt: Callable[..., Trial], tmp_path: Path) -> None:
    with attempt() as trial:
        seen = ObjectiveTrial(trial)
        assert not seen.should_prune()
        (tmp_path / "stop.json").write_text("{}")
        assert seen.should_prune()


def test_a_parameter_that_the_space_lacks_is_named_with_what_to_add(attempt: Callable[..., Trial]) -> None:
    with pytest.raises(ParameterMissingError) as missing:
        run(objective, trial=attempt(layers=1))

    added = {"lr": {"type": "float", "low": 0.0001, "high": 1.0, "log": True}}
    assert str(missing.value).endswith(f"add to search_space: {json.dumps(added)}")


@pytest.mark.parametrize("wrong", [{"lr": 2.0}, {"layers": 10}, {"kind": "rmsprop"}])
def test_a_value_outside_of_what_is_asked_for_is_refused(attempt: Callable[..., Trial], wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterOutsideError, match=next(iter(wrong))):
        run(objective, trial=attempt(**{**GIVEN, **wrong}))


def test_alone_it_gets_the_middle_of_every_range(alone: Trial) -> None:
    with alone:
        seen = ObjectiveTrial(alone)
        objective(seen)
        seen.suggest_float("momentum", 0.0, 1.0, step=0.4)

    assert seen.params == {"lr": pytest.approx(0.01), "layers": 5, "kind": "sgd", "momentum": 0.4}


def test_the_search_space_is_what_is_asked_for_before_the_first_report() -> None:
    def asks_more(trial: Any) -> float:
        objective(trial)
        return float(trial.suggest_float("late", 0, 1))

    assert search_space(asks_more) == {
        "lr": {"type": "float", "low": 0.0001, "high": 1.0, "log": True},
        "layers": {"type": "int", "low": 1, "high": 9},
        "kind": {"type": "categorical", "choices": ["sgd", "adam"]},
    }


def test_a_search_space_can_be_used_in_an_experiment_file() -> None:
    from tuner_service.domain.search_space import parse_search_space

    space = parse_search_space(search_space(objective))

    assert space.contains(GIVEN)
