"""Paths of an experiment file become assets, names of experiments ids; the rest is left as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.files.inputs import fill_in
from tuner_service.cli.output.exit_codes import CommandError


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
