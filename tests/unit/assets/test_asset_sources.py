"""Which files of a folder become an asset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_service.assets.sources import AssetSourceError, list_files


def test_all_files_of_a_folder_with_their_run_bits(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/run.sh").write_text("x")
    (tmp_path / "a/b/run.sh").chmod(0o755)
    (tmp_path / "data").write_text("y")

    found = {file.path: file.executable for file in list_files(tmp_path)}

    assert found == {"a/b/run.sh": True, "data": False}


def test_one_file_is_an_asset_too(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_text("x")

    assert [file.path for file in list_files(tmp_path / "weights.pt")] == ["weights.pt"]


def test_a_link_to_a_file_of_the_folder_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("content")
    (tmp_path / "b").symlink_to("a")

    assert {file.path: Path(file.location).name for file in list_files(tmp_path)} == {"a": "a", "b": "a"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "missing", ".", "folder", "link"])
def test_a_link_that_leads_out_or_nowhere_is_named(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    (root / "link").symlink_to(target)

    with pytest.raises(AssetSourceError, match="link"):
        list_files(root)


def test_a_pipe_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(AssetSourceError, match=r"pipe of .* is no plain file"):
        list_files(tmp_path)


def test_what_is_ignored_is_left_out_with_all_in_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x").write_text("x")
    (tmp_path / "kept").write_text("x")

    found = list_files(tmp_path, is_ignored=lambda path, is_folder: is_folder and path == "out")

    assert [file.path for file in found] == ["kept"]


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"a\\b"])
def test_a_name_that_no_asset_has_is_told(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("x")

    with pytest.raises(AssetSourceError, match="rename it"):
        list_files(tmp_path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssetSourceError, match="there is no"):
        list_files(tmp_path / "nothing")
