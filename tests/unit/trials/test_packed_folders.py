"""Folders that frameworks save as their checkpoints."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from trials.integrations import folders
from trials.integrations.folders import packed, unpack


def laid_out(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_with_its_subfolders(tmp_path: Path) -> None:
    files = {"model.bin": b"weights", "global_step4/rank0/optimizer.pt": b"moments", "global_step4/empty": b""}
    unpack(packed(laid_out(tmp_path / "out", **files)), tmp_path / "there" / "back")

    assert tree(tmp_path / "there" / "back") == files


def test_what_links_lead_to_is_kept_where_it_lies_in_the_folder_and_nothing_else(tmp_path: Path) -> None:
    laid_out(tmp_path / "secret", key=b"secret")
    folder = laid_out(tmp_path / "out", **{"step4/model": b"weights"})
    (folder / "latest").symlink_to("step4/model")
    (folder / "outside").symlink_to(tmp_path / "secret" / "key")
    (folder / "above").symlink_to(tmp_path / "secret")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    unpack(packed(folder), tmp_path / "back")

    assert tree(tmp_path / "back") == {"step4/model": b"weights", "latest": b"weights"}


def test_a_folder_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = laid_out(tmp_path / "out", **{"a/b": b"12", "c": b"3"})
    monkeypatch.setattr(folders, "BYTES_LIMIT", 2)
    with pytest.raises(ValueError, match="holds 2 files of 3 bytes; a checkpoint of it has at most"):
        packed(folder)
    monkeypatch.setattr(folders, "BYTES_LIMIT", 3)
    packed(folder)
    monkeypatch.setattr(folders, "FILES_LIMIT", 1)
    with pytest.raises(ValueError, match="at most 1 files"):
        packed(folder)


def an_archive(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "{above}/evil", "link/evil", "to_file"])
def test_nothing_is_laid_out_outside_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = laid_out(tmp_path / "back")
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "to_file").symlink_to(tmp_path / "elsewhere" / "evil")
    with pytest.raises(ValueError, match="would lie outside"):
        unpack(an_archive(name.format(above=tmp_path)), folder)

    assert tree(tmp_path / "elsewhere") == {}
    assert not (tmp_path / "evil").exists()
