"""Folders of a store that others write to while they are listed: what stays there is always among what is found."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trials.agent.home import Home
from trials.agent.moving.node_cache import remove_tree
from trials.stores import FileStore, StoreError, matching, sizes_in

NAMES = ("a", "b", "c")


class VanishingEntry:
    """A file that is taken away between its being listed and its being looked at."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name = entry.name
        self._entry = entry

    def is_file(self, *, follow_symlinks: bool) -> bool:
        return self._entry.is_file(follow_symlinks=follow_symlinks)

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        Path(self._entry.path).unlink()
        return self._entry.stat(follow_symlinks=follow_symlinks)


class Listing:
    def __init__(self, entries: list[Any]) -> None:
        self._entries = entries

    def __enter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __exit__(self, *_: object) -> None:
        return None


def listing_with_one_that_vanishes(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def listed(path: Any) -> Any:
        with scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        return Listing([VanishingEntry(entry) if entry.name == name else entry for entry in found])

    monkeypatch.setattr(os, "scandir", listed)
    for each in NAMES:
        (folder / each).write_bytes(each.encode())


@pytest.mark.parametrize("gone", NAMES)
def test_one_file_that_goes_while_a_folder_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    (tmp_path / "marks").mkdir()
    listing_with_one_that_vanishes(tmp_path / "marks", gone, monkeypatch)

    assert FileStore(str(tmp_path)).sizes("marks") == {name: 1 for name in NAMES if name != gone}


def test_folders_and_links_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"12")
    (tmp_path / "link").symlink_to(tmp_path / "file")

    assert sizes_in(tmp_path) == {"file": 2}
    assert sizes_in(tmp_path / "file") == {}
    assert sizes_in(tmp_path / "nowhere") == {}


class ChangingFolder:
    """Behind a URL: listing it fails as often as files have gone meanwhile."""

    def __init__(self, *, failures: int, is_there: bool = True) -> None:
        self._failures, self._is_there = failures, is_there

    def invalidate_cache(self) -> None:
        return None

    def isdir(self, path: str) -> bool:
        return self._is_there

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        assert detail
        self._failures -= 1
        if self._failures >= 0:
            raise FileNotFoundError(path)
        return [
            {"name": f"{path}/a", "size": 1, "type": "file"},
            {"name": f"{path}/deep", "size": 0, "type": "directory"},
        ]


def store_of(folder: ChangingFolder, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    monkeypatch.setattr("trials.stores.filesystem", lambda location: (folder, location))
    return FileStore("other://bucket")


def test_behind_a_url_a_folder_that_changed_is_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_of(ChangingFolder(failures=3), monkeypatch).sizes("marks") == {"a": 1}
    assert store_of(ChangingFolder(failures=3), monkeypatch).folders("marks") == ["deep"]


def test_behind_a_url_no_folder_is_empty_and_one_that_never_rests_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_of(ChangingFolder(failures=1, is_there=False), monkeypatch).sizes("marks") == {}
    with pytest.raises(StoreError, match="files came and went all the time; try again"):
        store_of(ChangingFolder(failures=1_000_000), monkeypatch).sizes("marks")


# ── folders of folders ──────────────────────────────────────────────────────────────────────────
def vanishing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes away after it was found, and before it is listed."""
    scandir = os.scandir

    def listed(path: Any) -> Any:
        if not isinstance(path, int) and Path(path) == folder and folder.exists():
            shutil.rmtree(folder)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)


def attempts_in(folder: Path) -> Path:
    for place in ("one/1/1-a", "two/1/1-b", "three/1/1-c"):
        (folder / place).mkdir(parents=True)
        (folder / place / "x.ckpt").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("gone", ["one", "two/1", "three/1/1-c"])
def test_one_folder_that_goes_while_files_are_looked_for_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    vanishing(attempts_in(tmp_path) / gone, monkeypatch)

    found = [str(path.relative_to(tmp_path)) for path in matching(tmp_path, "*/*/1-*/*.ckpt")]

    left = {"one", "two", "three"} - {gone.partition("/")[0]}
    assert sorted(found) == sorted(f"{name}/1/1-{'abc'[('one', 'two', 'three').index(name)]}/x.ckpt" for name in left)


def test_what_stands_in_a_folders_place_holds_nothing_and_hinders_nobody(tmp_path: Path) -> None:
    attempts_in(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("not-there")
    os.mkfifo(tmp_path / "pipe")

    assert len(list(matching(tmp_path, "*/*/*/*.ckpt"))) == 3
    assert list(matching(tmp_path / "not-there", "*")) == []
    assert [path.name for path in matching(tmp_path, "?????")] == ["three"]


def test_a_folder_that_cannot_be_read_is_an_error_and_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(OSError, match="Input/output error"):
        list(matching(tmp_path, "*"))


def test_a_checkpoint_that_other_attempts_have_stays_while_their_siblings_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    name = f"000000001-{'ab' * 6}.ckpt"
    for place in ("gone/1/1-a", "kept/1/1-b", "kept/2/1-c"):
        (home.attempts / place / "checkpoints").mkdir(parents=True)
        (home.attempts / place / "checkpoints" / name).write_bytes(b"weights")
    shared = home.checkpoints / ("ab" * 32)
    shared.write_bytes(b"weights")
    vanishing(home.attempts / "gone", monkeypatch)

    home.remove_checkpoint(home.attempts / "kept/1/1-b", name)
    assert shared.exists()
    home.remove_checkpoint(home.attempts / "kept/2/1-c", name)
    assert not shared.exists()


def test_a_link_in_a_checkpoints_place_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    attempt = home.attempts / "e/1/1-a"
    (attempt / "checkpoints").mkdir(parents=True)
    (attempt / "checkpoints" / "x.ckpt").symlink_to(theirs)

    home.remove_checkpoint(attempt, "x.ckpt")

    assert theirs.is_dir()
    assert list((attempt / "checkpoints").iterdir()) == []


def test_a_tree_that_two_remove_at_once_is_gone_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = attempts_in(tmp_path / "tree")
    chmod = os.chmod

    def raced(path: Any, mode: int) -> None:
        chmod(path, mode)
        if Path(path).name == "1-b":
            shutil.rmtree(tree / "three")
            shutil.rmtree(tree / "one")

    monkeypatch.setattr(os, "chmod", raced)
    monkeypatch.setattr("trials.agent.moving.node_cache.os.path.lexists", lambda _: True)
    remove_tree(tree)
    remove_tree(tree)

    assert not tree.exists()
