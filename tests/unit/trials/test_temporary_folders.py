"""Temporary folders of processes that were killed go when the next of the same kind comes; those in use stay."""

from __future__ import annotations

import os
from pathlib import Path

from trials.processes.temporary import LEFT_BEHIND_LIMIT, TemporaryFolder


def left_behind(root: Path, kind: str = "tuner-tasks") -> Path:
    """As by a process that was killed: nobody holds it any more."""
    folder = TemporaryFolder(kind, root=root)
    (folder.path / "node0").mkdir()
    (folder.path / "node0" / "file").write_text("text")
    os.close(folder._held)
    return folder.path


def test_a_folder_that_nobody_holds_is_removed_by_the_next_of_its_kind(tmp_path: Path) -> None:
    in_use = TemporaryFolder("tuner-tasks", root=tmp_path)
    other = left_behind(tmp_path, "other")
    gone = left_behind(tmp_path)

    new = TemporaryFolder("tuner-tasks", root=tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([in_use.path, other, new.path]), gone
    for folder in (in_use, new, new):
        folder.remove()
    assert list(tmp_path.iterdir()) == [other]


def test_what_only_looks_like_one_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "tuner-tasks-link").symlink_to(elsewhere)
    (tmp_path / "tuner-tasks-file").write_text("text")

    TemporaryFolder("tuner-tasks", root=tmp_path).remove()

    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "tuner-tasks-link", "tuner-tasks-file"}


def test_whoever_comes_removes_a_bounded_number_and_passes_over_those_in_use(tmp_path: Path) -> None:
    in_use = [TemporaryFolder("tuner-tasks", root=tmp_path) for _ in range(LEFT_BEHIND_LIMIT)]
    for number in range(LEFT_BEHIND_LIMIT + 1):
        (tmp_path / f"tuner-tasks-{number}").mkdir()

    new = [TemporaryFolder("tuner-tasks", root=tmp_path)]
    assert len(list(tmp_path.iterdir())) == len([*in_use, *new]) + 1
    new.append(TemporaryFolder("tuner-tasks", root=tmp_path))

    assert len(list(tmp_path.iterdir())) == len([*in_use, *new])
    for folder in [*in_use, *new]:
        folder.remove()
