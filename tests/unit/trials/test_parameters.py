from __future__ import annotations

from typing import Any

import pytest

from trials.agent.supervision.command import command_line, environment
from trials.parameters import from_arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--lr=0.1"], {"lr": 0.1}),
        (["--lr", "0.1", "b=2"], {"lr": 0.1, "b": 2}),
        (["--lr", "-0.5", "--name", "adam"], {"lr": -0.5, "name": "adam"}),
        (["--verbose", "--lr=1"], {"verbose": True, "lr": 1}),
        (["--layers=[64,32]", "--on=true", "--none=null"], {"layers": [64, 32], "on": True, "none": None}),
        (["--expression=a=b", "--empty="], {"expression": "a=b", "empty": ""}),
        (["train.csv", "-3", "--"], {}),
    ],
)
def test_parameters_are_read_from_the_command_line(arguments: list[str], expected: dict[str, Any]) -> None:
    assert from_arguments(arguments, {}) == expected


def test_arguments_win_over_defaults_also_with_dashes() -> None:
    assert from_arguments(["--learning-rate=2"], {"learning_rate": 1, "b": 3}) == {"learning_rate": 2, "b": 3}


PARAMETERS = {"lr": 0.1, "name": "a b", "flag": "", "none": None, "on": True, "nested": {"x": [1]}}


def spec(**fields: Any) -> dict[str, Any]:
    return {"command": ["python", "t.py"], "parameters": PARAMETERS, "seed": 1, "objective": "loss"} | fields


def test_without_a_prefix_the_command_stays_as_it_is() -> None:
    assert command_line(spec(), python="/usr/bin/py") == ["/usr/bin/py", "t.py"]


def test_the_experiments_interpreter_is_preferred_and_other_programs_are_left() -> None:
    assert command_line(spec(python="/opt/py"), python="/usr/bin/py")[0] == "/opt/py"
    assert command_line(spec(command=["bash", "python"]), python="/usr/bin/py") == ["bash", "python"]


@pytest.mark.parametrize(
    ("prefix", "delimiter", "expected"),
    [
        ("--", "=", ["--lr=0.1", "--name=a b", "--flag", "--none", "--on=true", '--nested={"x":[1]}']),
        ("", "=", ["lr=0.1", "name=a b", "flag", "none", "on=true", 'nested={"x":[1]}']),
        (
            "++",
            "=",
            ["++lr=0.1", "++name=a b", "++flag", "++none", "++on=true", '++nested={"x":[1]}'],
        ),  # as hydra has it
        ("--", " ", ["--lr", "0.1", "--name", "a b", "--flag", "--none", "--on", "true", "--nested", '{"x":[1]}']),
    ],
)
def test_parameters_become_arguments(prefix: str, delimiter: str, expected: list[str]) -> None:
    line = command_line(spec(arguments_prefix=prefix, arguments_delimiter=delimiter), python="py")

    assert line[2:] == expected


def test_a_command_line_is_read_back_by_a_script_that_runs_alone() -> None:
    arguments = command_line(
        spec(arguments_prefix="--", parameters={"lr": 0.1, "n": -3, "s": "x", "on": False}), python=""
    )

    assert from_arguments(arguments[2:], {}) == {"lr": 0.1, "n": -3, "s": "x", "on": False}


def test_the_environment_has_the_trials_variables_and_none_of_the_service() -> None:
    attempt = {
        "key": {"experiment_id": "exp", "number": 3, "attempt": 2},
        "nonce": "n",
        "spec": spec(environment={"A": "1", "TUNER_SEED": "0"}, parameters={"opt.lr": 0.1, "big": "x" * 40_000}),
        "local": {"wake": "/run/w"},
    }
    base = {"TUNER_TOKEN": "secret", "TRIAL_PARAM_OLD": "1", "PATH": "/bin", "PYTHONPATH": "/mine"}

    variables = environment(base, attempt, attempt_dir="/attempt", paths=["/sdk", "/nni"])

    assert variables == {
        "PATH": "/bin",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": "/sdk:/nni:/mine",
        "A": "1",
        "TRIAL_PARAM_OPT_LR": "0.1",
        "TUNER_ATTEMPT_DIR": "/attempt",
        "TUNER_NONCE": "n",
        "TUNER_EXPERIMENT_ID": "exp",
        "TUNER_TRIAL_NUMBER": "3",
        "TUNER_ATTEMPT": "2",
        "TUNER_OBJECTIVE": "loss",
        "TUNER_SEED": "1",
        "TUNER_WAKE_SOCKET": "/run/w",
    }
