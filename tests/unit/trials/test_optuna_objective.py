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
    explored,
    main,
    run,
    search_space,
)
from trials.session import Trial, open_trial
from trials.wire.encoding import decode_record
from trials.wire.records import MetricRecord, ParametersMissingRecord

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


# ── branches, and a space that grows ────────────────────────────────────────────────────────────
def branching(trial: Any) -> float:
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    if kind == "sgd":
        trial.suggest_float("momentum", 0, 1)
    layers = trial.suggest_int("layers", 1, 3)
    for layer in range(layers):
        trial.suggest_int(f"units_{layer}", 1, 64)
    if kind == "adam" and layers == 3:
        raise ValueError("too large")
    trial.report(0.0, 0)
    return 0.0


def test_every_branch_is_looked_at_and_says_when_its_parameters_are_asked_for() -> None:
    found = explored(branching)

    assert {name: form.get("when") for name, form in found.search_space.items()} == {
        "kind": None,
        "momentum": {"kind": "sgd"},
        "layers": None,
        "units_0": None,
        "units_1": {"layers": [2, 3]},
        "units_2": {"layers": 3},
    }
    assert found.is_whole
    assert str(found).startswith(f"all branches that were seen, in {found.runs} runs up to the first report")
    assert "a branch ended with ValueError: too large" in str(found)


def test_an_objective_with_more_ways_than_are_looked_at_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(trial: Any) -> float:
        return float(sum(trial.suggest_float(f"x{place}", 0, 1) for place in range(20)))

    monkeypatch.setattr("trials.integrations.optuna.MOST_RUNS", 50)
    found = explored(wide)

    assert len(found.search_space) == 20
    assert found.runs == 50
    assert not found.is_whole
    assert "there are more ways through it than 50 runs or 10 s show" in str(found)


def test_an_objective_that_takes_long_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 11.0])
    monkeypatch.setattr("trials.integrations.optuna.time.monotonic", lambda: next(moments))

    assert explored(branching).runs == 1


def test_what_an_objective_raises_at_once_is_its_own_error() -> None:
    with pytest.raises(ZeroDivisionError):
        explored(lambda trial: 1 / 0)


def test_a_parameter_with_two_ranges_is_told() -> None:
    def two(trial: Any) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return float(trial.suggest_float("x", 0, 1 if kind == "a" else 2))

    assert "x is asked for with another range" in str(explored(two))


def test_the_command_prints_the_space_and_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "an_objective.py").write_text("def objective(trial):\n    return trial.suggest_float('x', 0, 1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    main(["an_objective:objective"])

    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"search_space": {"x": {"type": "float", "low": 0, "high": 1}}}
    assert printed.err == "all branches that were seen, in 3 runs up to the first report\n"
    with pytest.raises(SystemExit, match="MODULE:OBJECTIVE"):
        main([])


@pytest.fixture
def growing(tmp_path: Path) -> Callable[..., Trial]:
    """``further``: what the service answers to each further asking, in order."""

    def make(*further: dict[str, Any] | None, **given: Any) -> Trial:
        (tmp_path / "attempt.json").write_text(json.dumps({"spec": {"define_by_run": True}}))
        (tmp_path / "parameters.json").write_text(json.dumps(given))
        for index, parameters in enumerate(further, start=1):
            (tmp_path / f"parameters-{index}.json").write_text(json.dumps({"parameters": parameters}))
        variables = {"TUNER_ATTEMPT_DIR": str(tmp_path), "TUNER_EXPERIMENT_ID": "exp", "TUNER_OBJECTIVE": "loss"}
        return open_trial(environ=variables, arguments=[])

    return make


def missed(folder: Path) -> list[tuple[list[str], dict[str, Any]]]:
    records = [decode_record(line) for line in (folder / "reports.jsonl").read_text().splitlines()]
    return [(list(r.parameters), r.beside) for r in records if isinstance(r, ParametersMissingRecord)]


def test_what_it_misses_is_told_with_the_branch_and_the_objective_begins_again(
    growing: Callable[..., Trial], tmp_path: Path
) -> None:
    sgd = {"kind": "sgd"}
    rest = {"momentum": 0.5, "layers": 1}
    trial = growing(sgd, {"kind": "sgd", "momentum": 0.25}, sgd | rest, sgd | rest | {"units_0": 8})

    assert run(branching, trial=trial) == 0.0

    assert missed(tmp_path) == [
        (["kind"], {}),
        (["momentum"], {"kind": "sgd"}),
        (["layers"], {"kind": "sgd"}),
        (["units_0"], {"kind": "sgd", "layers": 1}),
    ]
    assert reported(tmp_path)[-1] == (None, {"loss": 0.0})


def test_a_space_that_does_not_grow_so_fails_the_trial_with_what_to_add(growing: Callable[..., Trial]) -> None:
    with pytest.raises(ParameterMissingError, match="momentum"):
        run(branching, trial=growing({"kind": "sgd"}, kind="sgd"))


def test_where_there_are_no_further_parameters_it_is_missing_unless_the_trial_is_to_stop(
    growing: Callable[..., Trial], tmp_path: Path
) -> None:
    with pytest.raises(ParameterMissingError, match="kind"):
        run(branching, trial=growing(None))
    (tmp_path / "stop.json").write_text("{}")
    assert run(branching, trial=growing(None)) is None
