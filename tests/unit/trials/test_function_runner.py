"""A function run as a trial: its parameters as arguments, what it returns as the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.functions import ArgumentMissingError, arguments_of, call, main
from trials.session import Trial, init, open_trial
from trials.wire.encoding import decode_record
from trials.wire.records import MetricRecord


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., Trial]:
    def make(**given: Any) -> Trial:
        (tmp_path / "parameters.json").write_text(json.dumps(given))
        variables = {"TUNER_ATTEMPT_DIR": str(tmp_path), "TUNER_EXPERIMENT_ID": "exp", "TUNER_OBJECTIVE": "loss"}
        return open_trial(environ=variables, arguments=[])

    return make


def reported(folder: Path) -> list[tuple[int | None, dict[str, float]]]:
    records = [decode_record(line) for line in (folder / "reports.jsonl").read_text().splitlines()]
    return [(record.step, record.values) for record in records if isinstance(record, MetricRecord)]


def test_it_gets_the_parameters_it_names_and_its_number_is_the_objective(
    attempt: Callable[..., Trial], tmp_path: Path
) -> None:
    def train(x: float, trial: Trial, epochs: int = 2) -> float:
        trial.report(step=epochs, loss=x)
        return x / 2

    call(train, trial=attempt(x=3.0, unused=1))

    assert reported(tmp_path) == [(2, {"loss": 3.0}), (None, {"loss": 1.5})]


def test_a_mapping_is_several_metrics_and_nothing_is_none(attempt: Callable[..., Trial], tmp_path: Path) -> None:
    call(lambda: {"loss": 1.0, "size": 2}, trial=attempt())

    assert reported(tmp_path) == [(None, {"loss": 1.0, "size": 2.0})]


def test_what_it_reported_itself_is_the_result_whatever_it_returns(
    attempt: Callable[..., Trial], tmp_path: Path
) -> None:
    def train(trial: Trial) -> str:
        with trial:
            trial.report_final(loss=0.25)
        return "done"

    call(train, trial=attempt())

    assert reported(tmp_path) == [(None, {"loss": 0.25})]


def test_a_parameter_called_trial_is_that_parameter_and_the_rest_goes_where_all_is_taken(
    attempt: Callable[..., Trial],
) -> None:
    def train(trial: int, *more: int, x: float = 0, **rest: Any) -> None: ...

    given = arguments_of(train, attempt(trial=7, x=1.0, y=2.0))

    assert given == {"trial": 7, "x": 1.0, "y": 2.0}


def test_an_argument_that_nothing_gives_is_named(attempt: Callable[..., Trial]) -> None:
    def train(x: float, depth: int, /, width: int) -> None: ...

    with pytest.raises(ArgumentMissingError, match="train wants x, depth, width; the parameters of the trial are x:"):
        arguments_of(train, attempt(x=1.0))


def test_a_result_that_is_no_number_is_the_functions_mistake(attempt: Callable[..., Trial]) -> None:
    with pytest.raises(TypeError, match="loss"):
        call(lambda: "good", trial=attempt())


def test_defaults_of_a_later_init_fill_in_what_is_missing(attempt: Callable[..., Trial]) -> None:
    trial = attempt(x=1.0)
    trial.fill_in({"x": 5.0, "epochs": 3})
    trial.fill_in({"epochs": 9, "width": 2})

    assert dict(trial.parameters) == {"x": 1.0, "epochs": 3, "width": 2}


def test_alone_it_takes_its_parameters_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alone_function.py").write_text("def train(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["functions.py"])
    monkeypatch.setattr("trials.session._CURRENT._trial", None)

    main(["alone_function:train", "--x=4"])

    assert "default=8" in capsys.readouterr().out
    assert init(defaults={"y": 1}).parameters["y"] == 1


def test_without_a_function_it_says_how_it_is_called() -> None:
    with pytest.raises(SystemExit, match="MODULE:FUNCTION"):
        main(["train"])
