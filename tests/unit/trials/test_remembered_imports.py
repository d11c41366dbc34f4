"""Imports that are remembered by a script's text: which scripts are the same, and how many are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trials.agent.forks import remembered
from trials.agent.forks.remembered import SCRIPTS_MAX, Remembered, script_in

COMMAND = ("python", "train.py")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "models").mkdir(parents=True)
    (folder / "train.py").write_text("import models.net")
    (folder / "models" / "net.py").write_text("import torch")
    (folder / "search.json").write_text("{}")
    return folder


def change_text(work: Path) -> None:
    (work / "models" / "net.py").write_text("import numpy")


def rename(work: Path) -> None:
    (work / "models" / "net.py").rename(work / "models" / "nets.py")


def add(work: Path) -> None:
    (work / "more.py").touch()


def move_text(work: Path) -> None:
    """The same bytes one after the other, divided differently."""
    (work / "models" / "net.py").write_text("import torchimport ")
    (work / "train.py").write_text("models.net")


@pytest.mark.parametrize("change", [change_text, rename, add, move_text])
def test_a_change_of_any_python_file_makes_another_script(work: Path, change: Callable[[Path], None]) -> None:
    before = script_in(work, COMMAND)

    change(work)

    assert before is not None
    assert script_in(work, COMMAND) not in {None, before}


def test_another_command_is_another_script_and_another_file_of_data_is_not(work: Path) -> None:
    before = script_in(work, COMMAND)

    (work / "search.json").write_text('{"name": "again"}')
    (work / "data").mkdir()

    assert script_in(work, COMMAND) == before
    assert script_in(work, ("python", "train.py", "2")) != before
    assert script_in(work, ("python", "train.p", "y")) != before


def too_many_files(work: Path) -> None:
    for number in range(3):
        (work / f"{number}.py").touch()


def too_much_text(work: Path) -> None:
    (work / "long.py").write_text("#" * 200)


def too_many_entries(work: Path) -> None:
    for number in range(20):
        (work / "models" / f"{number}.txt").touch()


@pytest.mark.parametrize("grow", [too_many_files, too_much_text, too_many_entries])
def test_a_folder_with_too_much_in_it_is_not_remembered(
    work: Path, grow: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in {"FILES_MAX": 4, "BYTES_MAX": 200, "ENTRIES_MAX": 10}.items():
        monkeypatch.setattr(remembered, name, bound)
    assert script_in(work, COMMAND) is not None

    grow(work)

    assert script_in(work, COMMAND) is None


def test_links_are_not_followed_and_a_folder_that_is_gone_is_no_script(work: Path, tmp_path: Path) -> None:
    before = script_in(work, COMMAND)

    (work / "linked.py").symlink_to("/dev/zero")
    (work / "round").symlink_to(work)

    assert script_in(work, COMMAND) == before
    assert script_in(tmp_path / "gone", COMMAND) is None


def test_the_script_that_was_used_longest_ago_is_forgotten_first(tmp_path: Path) -> None:
    kept = Remembered(tmp_path / "scripts")
    for number in range(SCRIPTS_MAX):
        kept.keep(f"{number}", ["torch"])
        os.utime(tmp_path / "scripts" / f"{number}.imports.json", (number, number))

    assert kept.find("0") == ("torch",)
    kept.keep("new", ["numpy"])

    assert [kept.find(name) for name in ("0", "1", "2", "new")] == [("torch",), None, ("torch",), ("numpy",)]
    assert len(list((tmp_path / "scripts").iterdir())) == SCRIPTS_MAX


def test_nothing_is_kept_or_found_of_what_is_no_script(tmp_path: Path) -> None:
    kept = Remembered(tmp_path / "scripts")

    kept.keep(None, ["torch"])

    assert kept.find(None) is None
    assert not (tmp_path / "scripts").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"modules": 1}', '{"modules": null}', "{"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.imports.json").write_text(text)

    assert Remembered(tmp_path).find("s") is None


def test_only_names_of_modules_are_found(tmp_path: Path) -> None:
    (tmp_path / "s.imports.json").write_text(
        '{"modules": ["torch", 1, "os; print()", "a..b", "' + "x" * 501 + '", "a.b"]}'
    )

    assert Remembered(tmp_path).find("s") == ("torch", "a.b")


def test_what_goes_away_while_the_oldest_are_looked_for_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Remembered(tmp_path)
    kept.keep("gone", ["json"])
    (tmp_path / "nowhere").symlink_to("not-there")
    iterdir = Path.iterdir

    def listed(folder: Path) -> list[Path]:
        found = list(iterdir(folder))
        (tmp_path / "gone.imports.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "iterdir", listed)
    kept.keep("script", ["os"])

    assert kept.find("script") == ("os",)
    assert kept.find("gone") is None
