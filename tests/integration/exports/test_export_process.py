"""Files that take a library are made in a process of its own, over REST and by the command, and are the same."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.command_line import CommandLine, command_line
from tests.unit.exports.test_study import HEAD, a_row
from tuner_service.client import Client, ProblemError
from tuner_service.domain.errors import LimitExceededError, NotInstalledError
from tuner_service.exports import process
from tuner_service.exports.process import Form, make_apart, require_library
from tuner_service.service.questions import NotWantedError

STUDY = HEAD | {"form": "optuna"}


def wanted() -> None:
    """Somebody waits."""


def need_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed: pip install 'tuner-service[parquet]'")


def read_study(file: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(file)))
    (summary,) = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=summary.study_name, storage=storage)


def test_a_study_is_made(tmp_path: Path) -> None:
    with make_apart(STUDY, (a_row(n) for n in range(1, 2_500)), wanted) as made:
        (tmp_path / "study.log").write_bytes(made.read())

    assert len(read_study(tmp_path / "study.log").trials) == 2_499


def test_text_that_is_none_does_not_break_it_off(tmp_path: Path) -> None:
    with make_apart(STUDY, [a_row(message="\ud800 half")], wanted) as made:
        (tmp_path / "study.log").write_bytes(made.read())

    assert read_study(tmp_path / "study.log").trials[0].user_attrs["message"] == "? half"


def test_what_cannot_be_made_is_told_with_what_to_do() -> None:
    with pytest.raises(LimitExceededError, match=r"optuna cannot be made \(KeyError.*csv and jsonl"):
        make_apart(STUDY, [{"number": 1}], wanted)


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXPORT_LIMIT_S", 0.01)
    with pytest.raises(LimitExceededError, match=r"longer than 0\.01 s"):
        make_apart(STUDY, [a_row()], wanted)


def test_one_that_nobody_waits_for_is_ended() -> None:
    def check() -> None:
        raise NotWantedError

    with pytest.raises(NotWantedError):
        make_apart(STUDY, [a_row()], check)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    require_library(Form.OPTUNA)
    with pytest.raises(NotInstalledError, match=r"tuner-service\[parquet\]"):
        require_library(Form.PARQUET)


# ── a search ────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def tuner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("exports")) as line:
        line.begin_service()
        line.run("run", line.experiment_file())
        yield line


@pytest.fixture(scope="module")
def client(tuner: CommandLine) -> Iterator[Client]:
    import json

    address = json.loads((tuner.home / "service.json").read_text())["url"]
    found = Client(address, (tuner.home / "token").read_text().strip())
    yield found
    found.close()


def over_rest(client: Client, experiment: str, **query: Any) -> bytes:
    return client.call("GET", f"/api/v1/experiments/{experiment}/export", query=query).data


@pytest.mark.slow
def test_a_study_over_rest_and_by_the_command_is_one_that_optuna_opens(tuner: CommandLine, client: Client) -> None:
    shown = tuner.read("show", "digits")
    tuner.run("export", "digits", "by-command.log")
    (tuner.folder / "over-rest.log").write_bytes(over_rest(client, shown["id"], format="optuna"))

    one, other = (read_study(tuner.folder / f"{name}.log") for name in ("by-command", "over-rest"))
    assert one.trials == other.trials
    assert (one.study_name, one.direction.name, len(one.trials)) == ("digits", "MAXIMIZE", 3)
    assert one.best_value == shown["best"]["value"]
    assert one.best_trial.intermediate_values.keys() == {0, 1}
    optuna.copy_study(
        from_study_name="digits", from_storage=JournalStorage(JournalFileBackend(str(tuner.folder / "over-rest.log"))),
        to_storage=f"sqlite:///{tuner.folder / 'study.db'}",
    )  # fmt: skip
    assert optuna.load_study(study_name="digits", storage=f"sqlite:///{tuner.folder / 'study.db'}").best_value


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--metrics",)])
def test_a_parquet_file_over_rest_and_by_the_command_are_the_same(
    tuner: CommandLine, client: Client, options: tuple[str, ...]
) -> None:
    need_pyarrow()
    import pyarrow.parquet

    shown = tuner.read("show", "digits")
    tuner.run("export", "digits", "by-command.parquet", *options)
    query = {"metrics": "true"} if options else {}
    (tuner.folder / "over-rest.parquet").write_bytes(over_rest(client, shown["id"], format="parquet", **query))

    one, other = (pyarrow.parquet.read_table(tuner.folder / f"{name}.parquet") for name in ("by-command", "over-rest"))
    assert one.equals(other)
    assert one.num_rows == (9 if options else 3)


@pytest.mark.slow
def test_what_is_no_text_is_not_written_to_a_terminal(tuner: CommandLine) -> None:
    for form in ("parquet", "optuna"):
        assert "needs the name of a file" in tuner.run("export", "digits", "-o", form, code=2)
    assert "/metrics" in tuner.run("export", "digits", "x.log", "--metrics", code=2)
    assert not list(tuner.folder.glob("*x.log*"))


@pytest.mark.slow
def test_an_experiment_that_is_not_there_leaves_no_file(tuner: CommandLine, client: Client) -> None:
    tuner.run("export", "nobody", "nobody.log", code=3)
    assert "nowhere/x.csv cannot be written: No such file" in tuner.run("export", "digits", "nowhere/x.csv", code=1)
    (tuner.folder / "folder.csv").mkdir(exist_ok=True)
    assert "folder.csv cannot be written: Is a directory" in tuner.run("export", "digits", "folder.csv", code=1)
    with pytest.raises(ProblemError, match="nobody"):
        over_rest(client, "nobody", format="optuna")
    assert not list(tuner.folder.glob("*nobody*"))
