"""When a trial is forked, and what its fork server has in common with it."""

from __future__ import annotations

from typing import Any

import pytest

from trials.agent.forks.isolation import Fork, Spawn, choose, shadowed
from trials.agent.forks.script import NotForkableError, is_interpreter, script_of
from trials.agent.supervision.orders import ORDER_BYTES
from trials.files import to_json

PYTHON = "/opt/python/bin/python3"
BASE = {"PATH": "/bin", "HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "0,1", "TUNER_TOKEN": "secret"}


def an_attempt(*, nonce: str = "n", **spec: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"command": ["python", "train.py"], "parameters": {"lr": 0.1}, "objective": "a", "seed": 1}
    return {
        "key": {"experiment_id": "e", "number": 1, "attempt": 1},
        "nonce": nonce,
        "spec": fields | spec,
        "local": {"python": PYTHON, "paths": ["/home/me/path"], "wake": "/run/wake"},
    }


def chosen(attempt: dict[str, Any], *, base: dict[str, str] | None = None, preload: tuple[str, ...] = ()) -> Fork:
    found = choose(attempt, base=BASE if base is None else base, preload=preload)
    assert isinstance(found, Fork), found
    return found


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"isolation": "spawn"}, "asks for isolation: spawn"),
        ({"command": ["bash", "run.sh"]}, "does not run Python"),
        ({"command": []}, "does not run Python"),
        ({"command": ["/usr/bin/python3.9", "train.py"]}, "another interpreter"),
        ({"command": ["python", "train.py"], "python": "/elsewhere/python"}, "another interpreter"),
        ({"command": ["python", "-O", "train.py"]}, "option -O"),
        ({"command": ["python", "-X", "dev", "train.py"]}, "option -X"),
        ({"command": ["python"]}, "names no script"),
        ({"command": ["python", "-u"]}, "names no script"),
        ({"command": ["python", "-m"]}, "option -m"),
        ({"command": ["python", "folder"]}, "no Python file"),
    ],
)
def test_what_cannot_be_forked_is_started_anew_and_says_why(spec: dict[str, Any], why: str) -> None:
    found = choose(an_attempt(**spec), base=BASE, preload=())

    assert isinstance(found, Spawn)
    assert why in found.why


LONG = "ü" * 100_000  # as long as a word of a command may be


@pytest.mark.parametrize(
    "command", [["python", f"-c{LONG}"], ["python", LONG], [f"/opt/{LONG}/python3", "train.py"]], ids=lambda _: "long"
)
def test_why_it_is_started_anew_fits_into_an_order_and_among_arguments_whatever_the_command_holds(
    command: list[str],
) -> None:
    found = choose(an_attempt(command=command), base=BASE, preload=())

    assert isinstance(found, Spawn)
    assert len(to_json(found.why)) < ORDER_BYTES / 2


def test_the_sdk_is_imported_once_for_scripts_that_report_and_not_for_those_whose_output_is_read() -> None:
    assert chosen(an_attempt(), preload=("numpy",)).preload == ("trials.session", "trials.nni.calls", "numpy")
    assert chosen(an_attempt(metrics_pattern="(?P<x>x)"), preload=("numpy",)).preload == ("numpy",)


@pytest.mark.parametrize(
    ("command", "kind", "name", "arguments"),
    [
        (["python", "train.py", "--x", "1"], "file", "train.py", ["train.py", "--x", "1"]),
        (["python3", "-u", "a/b.py"], "file", "a/b.py", ["a/b.py"]),
        ([PYTHON, "-m", "pkg.mod", "y"], "module", "pkg.mod", ["-m", "y"]),
        (["python", "-c", "print(1)", "z"], "code", "print(1)", ["-c", "z"]),
    ],
)
def test_the_command_is_read_as_the_interpreter_reads_it(
    command: list[str], kind: str, name: str, arguments: list[str]
) -> None:
    script = script_of(command)

    assert (script.kind, script.name, script.arguments) == (kind, name, arguments)
    assert is_interpreter(command[0], python=None, own=PYTHON)


def test_the_agents_interpreter_may_be_named_as_the_experiments() -> None:
    assert isinstance(choose(an_attempt(python=PYTHON), base=BASE, preload=()), Fork)


def test_a_script_without_a_name_is_refused() -> None:
    with pytest.raises(NotForkableError, match="names no script"):
        script_of(["python"])


def test_trials_of_one_experiment_share_a_fork_server_whatever_their_parameters() -> None:
    one = chosen(an_attempt(nonce="a", parameters={"lr": 0.1}, seed=1))
    other = chosen(an_attempt(nonce="b", parameters={"lr": 0.2, "x": "y"}, seed=2))

    assert one.key == other.key
    assert not [name for name in one.variables if name.startswith(("TUNER_", "TRIAL_PARAM_"))]


@pytest.mark.parametrize(
    "difference",
    [
        {"environment": {"OMP_NUM_THREADS": "2"}},
        {"environment": {"PYTHONHASHSEED": "0"}},
        {"environment": {"LD_PRELOAD": "/lib/x.so"}},
        {"environment": {"PYTHONPATH": "/more"}},
    ],
)
def test_other_variables_mean_another_fork_server_that_is_started_with_them(difference: dict[str, Any]) -> None:
    one, other = chosen(an_attempt()), chosen(an_attempt(**difference))

    assert one.key != other.key
    for name, text in difference["environment"].items():
        assert text in other.variables[name]


def test_other_modules_mean_another_fork_server() -> None:
    assert chosen(an_attempt(), preload=("torch",)).key != chosen(an_attempt()).key


def test_devices_of_one_trial_are_no_matter_of_the_fork_server() -> None:
    one = chosen(an_attempt(environment={"CUDA_VISIBLE_DEVICES": "GPU-1", "RANK": "3"}))

    assert one.key == chosen(an_attempt()).key
    assert one.variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "RANK" not in one.variables


def test_the_variables_of_a_fork_server_lead_to_the_same_fork_server() -> None:
    once = chosen(an_attempt())

    assert chosen(an_attempt(), base=dict(once.variables)).key == once.key


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["train.py", "numpy.py"], "numpy.py"),
        (["train.py", "numpy"], "numpy"),
        (["numpy.cpython-311-x86_64-linux-gnu.so"], "numpy.cpython-311-x86_64-linux-gnu.so"),
        (["numpy.txt", "numpy.yaml", "train.py", "my_numpy.py"], None),
        ([], None),
    ],
)
def test_a_file_of_the_script_that_hides_a_loaded_library_is_found(names: list[str], found: str | None) -> None:
    assert shadowed(names, {"numpy", "torch"}) == found
