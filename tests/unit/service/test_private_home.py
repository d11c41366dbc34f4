"""A home folder is closed to others: what the service made, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.deep_folders import deepen
from trials.files import remove_tree
from tuner_service import wiring
from tuner_service.config import Settings
from tuner_service.domain.errors import StorageError
from tuner_service.service.private import OWN_FILES, OWN_FOLDERS, make_private

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def modes(home: Path) -> dict[str, int]:
    return {str(path.relative_to(home)): path.stat().st_mode & 0o777 for path in [home, *home.rglob("*")]}


def an_open_home(folder: Path) -> Path:
    home = folder / "home"
    (home / "attempts" / "e" / "1" / "1-n").mkdir(parents=True)
    (home / "agent" / "code" / "d").mkdir(parents=True)
    for name in ("attempts/e/1/1-n/attempt.json", "agent/agent.log", "agent/code/d/run.sh", "tuner.db-wal", "token"):
        (home / name).write_text("x")
    for path in [home, *home.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
    return home


def test_a_home_that_an_earlier_version_left_open_is_closed_to_its_last_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = an_open_home(tmp_path)

    closed = make_private(home)

    found = modes(home)
    assert all(mode & 0o077 == 0 for mode in found.values())
    assert (found["."], found["agent/code/d/run.sh"], found["token"]) == (0o700, 0o700, 0o600)
    assert closed == len(found)
    assert "home_closed_to_others" in caplog.text
    assert make_private(home) == 0


def test_a_folder_with_an_agent_folder_of_somebody_elses_is_no_home_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "policy.py").touch()

    with pytest.raises(StorageError, match=r"is no home for a service: its folder .*/agent holds files"):
        wiring.serve(Settings(home=tmp_path, db=""))

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["agent", "policy.py"]


def test_all_that_a_service_and_its_commands_leave_in_a_home_is_the_services(tmp_path: Path) -> None:
    home = an_open_home(tmp_path)
    names = ("port", "open.html", "notified.json", "assets/files/ab/abcd", "assets/assets/l/d", "ray/token")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
        (home / name).chmod(0o644)
    home.chmod(0o755)

    make_private(home)

    found = modes(home)
    assert found["."] == 0o700
    assert {name: found[name] for name in names} == dict.fromkeys(names, 0o600)


def test_the_page_of_the_home_names_what_is_the_services() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## The home folder")
    named = {name for line in section.splitlines() if line.startswith("|") for name in line.split("|")[1].split("`")}

    assert {*OWN_FILES, *(f"{name}/" for name in OWN_FOLDERS)} <= named


def test_a_new_home_is_made_closed(tmp_path: Path) -> None:
    assert make_private(tmp_path / "a" / "home") == 0
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_holds_other_things_too_stays_as_it_is_and_so_do_they(tmp_path: Path) -> None:
    home = an_open_home(tmp_path)
    (home / "thesis").mkdir(mode=0o755)
    (home / "thesis" / "page.tex").write_text("x")
    (home / "thesis" / "page.tex").chmod(0o644)
    home.chmod(0o755)

    make_private(home)

    found = modes(home)
    assert (found["."], found["thesis"], found["thesis/page.tex"]) == (0o755, 0o755, 0o644)
    assert (found["attempts"], found["tuner.db-wal"]) == (0o700, 0o600)


def test_what_a_person_has_in_a_folder_called_as_one_of_the_services_stays_as_it_is(tmp_path: Path) -> None:
    """A home may be the folder of a project: that in which its database lies."""
    home = an_open_home(tmp_path)
    own, large = ["assets/css/site.css", "checkpoints/best/model.pt"], f"checkpoints/{'a' * 64}"
    for name in (*own, large, "assets/files/ab/abcd"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
        for path in (home / name, (home / name).parent, (home / name).parent.parent):
            path.chmod(0o755)

    make_private(home)

    found = modes(home)
    assert {found[name] for name in (*own, "assets", "assets/css", "checkpoints", "checkpoints/best")} == {0o755}
    assert {found[name] for name in (large, "assets/files", "assets/files/ab", "assets/files/ab/abcd")} == {0o700}


def test_links_are_not_followed(tmp_path: Path) -> None:
    home = an_open_home(tmp_path)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "elsewhere" / "file").write_text("x")
    (tmp_path / "elsewhere" / "file").chmod(0o644)
    (home / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (home / "attempts" / "link").symlink_to(tmp_path / "elsewhere" / "file")

    make_private(home)

    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "elsewhere" / "file").stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_closed_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = an_open_home(tmp_path)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", os.fspath(path))

    monkeypatch.setattr(Path, "chmod", refuse)

    assert make_private(home) == 0


def test_a_home_in_which_a_trial_made_deep_folders_is_closed_as_far_as_a_path_reaches(tmp_path: Path) -> None:
    home = an_open_home(tmp_path)
    deepen(home / "attempts" / "e" / "1" / "1-n" / "work")
    (home / "attempts" / "e" / "1" / "1-n" / "work").chmod(0o755)

    assert make_private(home) > 100
    assert (home / "attempts" / "e" / "1" / "1-n" / "work" / "file").stat().st_mode & 0o077 == 0
    remove_tree(home)
