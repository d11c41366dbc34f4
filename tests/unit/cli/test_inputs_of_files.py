"""Paths of an experiment file become assets, names of experiments ids; the rest is left as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tuner_service.cli.files import inputs
from tuner_service.cli.files.inputs import fill_in, filled_in
from tuner_service.cli.output.exit_codes import CommandError
from tuner_service.client import Client, ProblemError


def filled(folder: Path, **trial: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    added: list[tuple[str, str]] = []

    def add(path: Path, kind: str) -> str:
        added.append((path.name, kind))
        return f"sha256:{path.name}"

    body = fill_in({"trial": trial}, folder, add=add, find_experiment=lambda name: {"digits": "8f3k2"}.get(name, name))
    return body["trial"], added


def test_folders_and_archives_are_added_and_named_by_their_digest(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "more.zip").write_bytes(b"")

    trial, added = filled(
        tmp_path, datasets={"data": "./data", "more": ["./more.zip", "digits@3"]}, models={"m": {"path": "data"}}
    )

    assert trial["datasets"]["data"] == {"asset": "sha256:data", "name": "data"}
    assert trial["datasets"]["more"] == [{"asset": "sha256:more.zip", "name": "more.zip"}, "digits@3"]
    assert trial["models"] == {"m": {"asset": "sha256:data", "name": "data"}}
    assert added == [("data", "dataset"), ("more.zip", "dataset"), ("data", "model")]


def test_a_bare_word_is_a_name_also_where_a_folder_of_that_name_lies_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits").mkdir()

    trial, added = filled(tmp_path, datasets={"data": "digits"})

    assert (trial["datasets"], added) == ({"data": "digits"}, [])
    assert "write ./digits" in capsys.readouterr().err


def test_a_reference_is_made_absolute_and_not_looked_at(tmp_path: Path) -> None:
    trial, added = filled(tmp_path, datasets={"data": {"path": "there", "mode": "reference"}})

    assert (trial["datasets"]["data"], added) == ({"path": str(tmp_path / "there"), "mode": "reference"}, [])


def test_what_is_not_there_is_said_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"datasets\.data: there is no folder or archive .*nothing"):
        filled(tmp_path, datasets={"data": "./nothing"})


def test_trials_are_named_as_on_the_command_line(tmp_path: Path) -> None:
    pretrained = {"warm": "digits/best", "all": ["digits/1", {"trial": "abc12/2", "what": "checkpoint"}]}

    trial, _ = filled(tmp_path, pretrained_from=pretrained)

    assert trial["pretrained_from"] == {
        "warm": "8f3k2/best",
        "all": ["8f3k2/1", {"trial": "abc12/2", "what": "checkpoint"}],
    }


@pytest.mark.parametrize("wrong", [5, None, {"x": 1}, ["./a"], {"path": 5}])
def test_what_makes_no_sense_is_left_for_the_service_to_name(tmp_path: Path, wrong: Any) -> None:
    if isinstance(wrong, list):
        wrong = [7]

    assert filled(tmp_path, datasets={"data": wrong})[0]["datasets"] == {"data": wrong}
    assert filled(tmp_path, datasets=wrong)[0]["datasets"] == wrong if not isinstance(wrong, dict) else True


class Taking:
    """A service that takes what it is sent, and has one asset; what it was asked, in its order."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal, self.asked = refusal, list[str]()

    def create(self, body: dict[str, Any], *, dry_run: bool) -> None:
        self.asked.append(f"look at {body['trial']['datasets']}" if dry_run else "create")
        if self.refusal is not None:
            raise self.refusal

    def trial(self, experiment_id: str, number: int) -> None:
        if (experiment_id, number) != ("8f3k2", 1):
            raise ProblemError(status=404, problem={"detail": f"there is no trial {experiment_id}/{number}"})

    def asset(self, reference: str) -> None:
        if reference != "digits@3":
            raise ProblemError(status=404, problem={"detail": f"there is no asset {reference}"})


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def add_asset(_: Client, addition: inputs.Addition, *, told: Any) -> dict[str, Any]:  # says nothing
        found.append(f"{addition.source.name}, a {addition.kind}")
        return {"files": 1, "size": 1, "digest": f"sha256:{addition.source.name}"}

    monkeypatch.setattr(inputs, "add_asset", add_asset)
    (tmp_path / "data").mkdir()
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path)
    return found


def test_what_a_file_says_is_looked_at_before_anything_is_sent(added: list[str]) -> None:
    service = Taking(ProblemError(status=422, problem={"detail": "budget: should be a mapping"}))

    with pytest.raises(ProblemError, match="budget: should be"):
        filled_in(cast("Client", service), {"trial": {"datasets": {"data": "./data"}}})

    assert added == []
    assert service.asked == [f"look at {{'data': {{'asset': 'sha256:{'0' * 64}', 'name': 'data'}}}}"]


def test_a_trial_that_is_not_there_is_said_before_anything_is_sent(
    added: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "resolve_experiment", lambda _, name: name)
    trial = {"datasets": {"data": "./data"}, "pretrained_from": {"warm": ["8f3k2/1", {"trial": "8f3k2/2"}]}}

    with pytest.raises(CommandError, match=r"trial\.pretrained_from\.warm: there is no trial 8f3k2/2"):
        filled_in(cast("Client", Taking()), {"trial": trial})

    assert added == []


@pytest.mark.parametrize(
    "trial",
    [
        {"datasets": {"data": "./data", "test": ["digits@3", "digts@3"]}},
        {"datasets": {"data": "./data"}, "models": {"test": {"asset": "digts@3"}}},
        {"datasets": {"data": "./data"}, "code": {"asset": "digts@3"}},
    ],
)
def test_an_asset_that_is_not_there_is_said_before_anything_is_sent(added: list[str], trial: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match=r"trial\.(datasets\.test|models\.test|code): there is no asset digts@3"):
        filled_in(cast("Client", Taking()), {"trial": trial})

    assert added == []


def test_what_was_looked_at_is_then_added_where_it_stands(added: list[str], tmp_path: Path) -> None:
    trial = {
        "code": {"path": str(tmp_path / "code")},
        "datasets": {"data": ["./data", "digits@3"]},
        "arguments": {"x": "sha256:" + "0" * 64},
    }

    filled = filled_in(cast("Client", Taking()), {"trial": trial})["trial"]

    assert added == ["code, a code", "data, a dataset"]
    assert filled["code"] == {"asset": "sha256:code", "name": "code"}
    assert filled["datasets"] == {"data": [{"asset": "sha256:data", "name": "data"}, "digits@3"]}
    assert filled["arguments"] == trial["arguments"]


def test_where_nothing_is_to_be_added_nothing_is_looked_at(added: list[str]) -> None:
    service = Taking()

    assert filled_in(cast("Client", service), {"trial": {"datasets": {"data": "digits"}}})
    assert (service.asked, added) == ([], [])
