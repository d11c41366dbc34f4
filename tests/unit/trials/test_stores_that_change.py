"""Folders of a store that others write to while they are listed: what stays there is always among what is found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trials.stores import FileStore, StoreError, sizes_in

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
