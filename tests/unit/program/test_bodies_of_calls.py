"""From the arguments of a call to the fields of an experiment file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tuner_service import UsageError, aio, quick_start
from tuner_service.cli.files import experiment_file
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.client import ClientError, ProblemError, TokenWithheldError, UnsendableError
from tuner_service.client import UnreachableError as NoAnswerError
from tuner_service.domain.errors import Fault, InputError
from tuner_service.program import bodies, errors
from tuner_service.program.bodies import change_body, experiment_body, resume_body

EMPTY_TAR = bytes(10_240)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def faults(**given: Any) -> dict[str, str]:
    with pytest.raises(UsageError) as wrong:
        experiment_body(given)
    return {error["pointer"]: error["detail"] for error in wrong.value.errors}


def test_arguments_become_the_fields_of_the_file() -> None:
    body = experiment_body({
        "command": ["python", "train.py"], "search_space": {"lr": {"type": "float", "low": 0, "high": 1}},
        "objective": "accuracy", "goal": "maximize", "trials": 5, "parallel": 2, "seed": 7, "gpus": 0.5,
        "memory": "8GB", "environment": {"A": "b"}, "tuner": "tpe", "quota_group": "research", "project": None,
        "trial": {"final": "best", "resources": {"cpus": 2}}, "experiment": {"workers": 2},
    })  # fmt: skip

    assert body == {
        "search_space": {"lr": {"type": "float", "low": 0, "high": 1}},
        "objective": {"metric": "accuracy", "goal": "maximize"},
        "budget": {"trials": 5, "parallel": 2},
        "trial": {
            "command": ["python", "train.py"], "environment": {"A": "b"}, "final": "best",
            "resources": {"cpus": 2, "gpus": 0.5, "memory": "8GB"},
        },
        "seed": 7, "tuner": "tpe", "quota_group": "research", "workers": 2,
    }  # fmt: skip


def test_what_the_experiment_says_of_its_trials_is_not_lost() -> None:
    body = experiment_body({
        "lease": "10s", "experiment": {"trial": {"max_attempts": 3, "final": "last"}}, "trial": {"final": "best"},
    })  # fmt: skip

    assert body["trial"] == {"lease": "10s", "max_attempts": 3, "final": "best"}
    assert faults(lease="10s", experiment={"trial": "train.py"}).keys() == {"/experiment/trial"}


def test_the_arguments_replace_what_a_file_says(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "train.py").write_text("print(1)\n")
    (folder / "search.yaml").write_text(
        "objective: {metric: loss}\nbudget: {trials: 5, parallel: 2}\n"
        "trial: {code: code, command: python train.py, final: last}\n"
    )
    body = experiment_body({"file": "elsewhere/search.yaml", "trials": 9, "goal": "maximize"})

    assert body["name"] == "search"
    assert body["budget"] == {"trials": 9, "parallel": 2}
    assert body["objective"] == {"metric": "loss", "goal": "maximize"}
    assert body["trial"]["code"] == {"files": [{"path": "train.py", "content": "print(1)\n"}]}

    def train(x: float) -> float:
        return x

    body = experiment_body({"file": Path("elsewhere/search.yaml"), "function": train, "name": "mine"})
    assert body["name"] == "mine"
    assert [file["path"] for file in body["trial"]["code"]["files"]] == ["train.py", "train_function.py"]
    assert body["trial"]["command"][-1] == "train_function:train"
    assert body["trial"]["final"] == "last"


def test_paths_of_arguments_are_of_the_working_folder_and_names_stay_names(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    given = {"data": Path("data"), "more": ["./data", "digits@3"], "large": {"path": "data", "mode": "reference"}}
    body = experiment_body({"command": "true", "datasets": given, "models": {"model": "resnet@latest"}})

    data = str(tmp_path / "data")
    assert body["trial"]["datasets"] == {
        "data": data, "more": [data, "digits@3"], "large": {"path": data, "mode": "reference"},
    }  # fmt: skip
    assert body["trial"]["models"] == {"model": "resnet@latest"}


def test_a_name_stays_one_whatever_lies_here(tmp_path: Path) -> None:
    for name in ("digits", "main", "train.py"):
        (tmp_path / name).mkdir()
    named = {"data": "digits", "more": ["digits", {"asset": "digits", "inside": "main"}], "long": "d" * 300}

    assert experiment_body({"command": "a", "datasets": named})["trial"]["datasets"] == named
    for code in ({"asset": "digits"}, {"files": [{"path": "train.py", "content": "x" * 300}]}, {"asset": "d" * 300}):
        assert experiment_body({"command": "a", "code": code})["trial"]["code"] == code


def test_the_folder_of_a_ref_is_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str]] = []

    def archive_of(folder: Path, ref: str) -> tuple[bytes, dict[str, Any]]:
        asked.append((folder, ref))
        return EMPTY_TAR, {}

    monkeypatch.setattr(experiment_file, "archive_of", archive_of)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "search.yaml").write_text("trial: {command: a}\n")
    (tmp_path / "main").mkdir()

    experiment_body({"file": "elsewhere/search.yaml", "code": {"git": "main", "folder": "src"}})

    assert asked == [(tmp_path / "src", "main")]


def test_exactly_one_way_to_run_is_wanted() -> None:
    assert faults(command="a", entry_point="b:c").keys() == {"/command", "/entry_point"}
    assert "nothing says what a trial runs" in faults(trials=5)["/command"]
    assert "is of one objective" in faults(command="a", goal="minimize")["/goal"]
    assert "the code is a folder" in faults(function=fine, code="sha256:" + "0" * 64)["/code"]


def fine(x: float) -> float:
    return x


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError, match=r"nothing\.yaml does not exist"):
        experiment_body({"file": "nothing.yaml"})
    Path("nni.yaml").write_text("trialCommand: python train.py\nsearchSpace: {}\ntrialConcurrency: 1\n")
    with pytest.raises(UsageError, match=r"tuner start nni\.yaml"):
        experiment_body({"file": "nni.yaml"})
    with pytest.raises(UsageError, match="there is no folder"):
        experiment_body({"command": "a", "code": "nowhere"})


def test_a_change_names_something_and_a_resume_need_not() -> None:
    nothing = dict.fromkeys(("trials", "parallel"))
    with pytest.raises(UsageError, match="name something to change"):
        change_body(nothing, {"note": None})
    assert change_body({"trials": 5}, {"tags": ("a",)}) == {"tags": ["a"], "budget": {"trials": 5}}
    assert resume_body(nothing, code=None, skip_line=None) == {}
    Path("train.py").write_text("")
    assert resume_body({"trials": 5}, code=".", skip_line=3, algorithm_timeout="5m") == {
        "budget": {"trials": 5}, "skip_line": 3, "algorithm_timeout": "5m",
        "code": {"files": [{"path": "train.py", "content": ""}]}, "code_origin": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raised", "kind", "exit_code"),
    [
        (ProblemError(404, {"detail": "none"}), errors.NotFoundError, 3),
        (ProblemError(409, {"detail": "no", "allowed": ["wait"]}), errors.ConflictError, 4),
        (ProblemError(422, {"detail": "wrong", "errors": [{"pointer": "/a", "detail": "b"}]}), errors.UsageError, 2),
        (ProblemError(403, {}), errors.NotAllowedError, 7),
        (ProblemError(503, {}), errors.UnreachableError, 5),
        (ProblemError(500, {}), errors.TunerError, 1),
        (NoAnswerError("gone"), errors.UnreachableError, 5),
        (TokenWithheldError("whose"), errors.NotAllowedError, 7),
        (UnsendableError("what"), errors.UsageError, 2),
        (CommandError("which", ExitCode.NOT_FOUND), errors.NotFoundError, 3),
        (CommandError("what"), errors.TunerError, 1),
        (InputError([Fault(pointer="/url", message="no")]), errors.UsageError, 2),
        (ClientError("odd"), errors.TunerError, 1),
    ],
    ids=str,
)
def test_errors_are_those_of_the_command_line(raised: Exception, kind: type[errors.TunerError], exit_code: int) -> None:
    with pytest.raises(errors.TunerError) as found, errors.as_tuner_errors():
        raise raised

    assert type(found.value) is kind
    assert found.value.exit_code == exit_code
    if isinstance(raised, ProblemError):
        assert found.value.status == raised.status
        assert list(found.value.errors) == list(raised.problem.get("errors", ()))
        assert list(found.value.allowed) == list(raised.problem.get("allowed", ()))


def test_an_awaited_start_reads_files_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def read(_: Any) -> None:
        threads.append(threading.current_thread())
        raise UsageError("enough")

    monkeypatch.setattr(bodies, "experiment_body", read)
    with pytest.raises(UsageError, match="enough"):
        asyncio.run(aio.quick_start(command="true"))
    with pytest.raises(UsageError, match="enough"):
        quick_start(command="true")
    assert [thread is threading.main_thread() for thread in threads] == [False, True]
