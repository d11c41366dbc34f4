"""What a checkpoint made of folders may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trials.nni import folders
from trials.nni.folders import FILES_KEY, SAVE, CheckpointFolders


class Saving:
    """A trial, as far as folders need one."""

    def __init__(self, state: Any = None) -> None:
        self.state = state
        self.saved: list[Any] = []

    def restore(self) -> Any:
        return self.state

    def save_checkpoint(self, state: Any) -> None:
        self.saved.append(state)


@pytest.mark.parametrize("name", ["../escaped", "/etc/escaped", "a/../../b", ""])
def test_a_file_that_would_lie_outside_is_refused(name: str, tmp_path: Path) -> None:
    trial: Any = Saving({FILES_KEY: {name: b"x"}})

    with pytest.raises(ValueError, match="would lie outside load_checkpoint_dir"):
        CheckpointFolders(tmp_path / "mine").begin(trial)

    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("state", [None, {"epoch": 3}, [1, 2]])
def test_a_checkpoint_of_the_scripts_own_leaves_the_folders_empty(state: Any, tmp_path: Path) -> None:
    trial: Any = Saving(state)
    given = CheckpointFolders(tmp_path).begin(trial)

    assert [list(Path(folder).iterdir()) for folder in given.values()] == [[], []]


def test_only_something_new_is_saved_and_links_are_left_out(tmp_path: Path) -> None:
    trial: Any = Saving()
    mine = CheckpointFolders(tmp_path)
    save = Path(mine.begin(trial)[SAVE])
    mine.save(trial)
    (save / "model").write_bytes(b"1")
    (save / "link").symlink_to("/etc/hostname")
    mine.save(trial)
    mine.save(trial)
    (save / "model").write_bytes(b"22")
    mine.save(trial)

    assert trial.saved == [{FILES_KEY: {"model": b"1"}}, {FILES_KEY: {"model": b"22"}}]


def test_more_than_a_checkpoint_may_hold_is_an_error_that_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "FILES_LIMIT", 1)
    trial: Any = Saving()
    mine = CheckpointFolders(tmp_path)
    save = Path(mine.begin(trial)[SAVE])
    (save / "a").write_bytes(b"1")
    (save / "b").write_bytes(b"1")

    with pytest.raises(ValueError, match="holds 2 files of 2 bytes; a checkpoint of it has at most 1 files"):
        mine.save(trial)
