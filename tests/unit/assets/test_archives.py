"""Archives as sources: what is in them is taken, and nothing outside the folder is touched."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner_service.assets import archives
from tuner_service.assets.archives import is_archive, unpack_archive
from tuner_service.assets.sources import AssetSourceError


def a_tar(path: Path, *entries: tuple[str, bytes | None, dict[str, object]]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data, fields in entries:
            entry = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(entry, field, value)
            entry.size = len(data or b"")
            archive.addfile(entry, None if data is None else io.BytesIO(data))
    return path


def a_zip(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tar_is_unpacked_with_its_run_bits_and_links(tmp_path: Path) -> None:
    archive = a_tar(
        tmp_path / "x.tar.gz",
        ("./", None, {"type": tarfile.DIRTYPE}),
        ("./a/run", b"code", {"mode": 0o755}),
        ("./a/hard", None, {"type": tarfile.LNKTYPE, "linkname": "./a/run"}),
        ("./soft", None, {"type": tarfile.SYMTYPE, "linkname": "a/hard"}),
    )

    folder = unpack_archive(archive, tmp_path / "out")

    assert is_archive(archive)
    assert content(folder) == {"a/run": b"code", "a/hard": b"code", "soft": b"code"}
    assert (folder / "a/run").stat().st_mode & stat.S_IXUSR
    assert not (folder / "soft").is_symlink()


def test_a_zip_is_unpacked_with_its_run_bits_and_links(tmp_path: Path) -> None:
    link = stat.S_IFLNK | 0o777
    archive = a_zip(tmp_path / "x.zip", ("d/", b"", 0), ("d/run", b"code", 0o100755), ("link", b"d/run", link))

    folder = unpack_archive(archive, tmp_path / "out")

    assert content(folder) == {"d/run": b"code", "link": b"code"}
    assert (folder / "d/run").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    "entry",
    [
        ("../evil", b"x", {}),
        ("/tmp/evil", b"x", {}),
        ("a/../../evil", b"x", {}),
        ("link", None, {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("link", None, {"type": tarfile.SYMTYPE, "linkname": "../../etc/passwd"}),
        ("link", None, {"type": tarfile.LNKTYPE, "linkname": "../evil"}),
        ("link", None, {"type": tarfile.SYMTYPE, "linkname": "link"}),
        ("link", None, {"type": tarfile.SYMTYPE, "linkname": "missing"}),
        ("pipe", None, {"type": tarfile.FIFOTYPE}),
        ("device", None, {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
    ],
    ids=lambda entry: f"{entry[0]} {entry[2]}",
)
def test_hostile_entries_of_a_tar_are_refused(
    tmp_path: Path, entry: tuple[str, bytes | None, dict[str, object]]
) -> None:
    archive = a_tar(tmp_path / "x.tar", entry)

    with pytest.raises(AssetSourceError):
        unpack_archive(archive, tmp_path / "deep/out")

    assert not (tmp_path / "deep/evil").exists()
    assert not (tmp_path / "evil").exists()


def test_a_link_to_what_stands_beside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/secret").write_bytes(b"x")
    links = a_tar(tmp_path / "x.tar", ("link", None, {"type": tarfile.SYMTYPE, "linkname": "../secret"}))

    with pytest.raises(AssetSourceError, match="leads out of the archive"):
        unpack_archive(links, tmp_path / "deep/out")


@pytest.mark.parametrize(
    "entry",
    [("../evil", b"x", 0), ("/evil", b"x", 0), ("l", b"/etc/passwd", stat.S_IFLNK), ("p", b"", stat.S_IFIFO)],
)
def test_hostile_entries_of_a_zip_are_refused(tmp_path: Path, entry: tuple[str, bytes, int]) -> None:
    with pytest.raises(AssetSourceError):
        unpack_archive(a_zip(tmp_path / "x.zip", entry), tmp_path / "out")


def test_what_is_in_an_archive_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssetSourceError, match="twice"):
        unpack_archive(a_tar(tmp_path / "x.tar", ("a", b"1", {}), ("a", b"2", {})), tmp_path / "out")
    with pytest.raises(AssetSourceError, match="twice"):
        unpack_archive(a_tar(tmp_path / "y.tar", ("a", b"1", {}), ("a/b", b"2", {})), tmp_path / "out2")


def test_an_archive_that_holds_far_more_than_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "RATIO_FROM_BYTES", 1 << 20)
    archive = a_zip(tmp_path / "bomb.zip", ("zeros", bytes(8 << 20), 0))

    with pytest.raises(AssetSourceError, match="200 times"):
        unpack_archive(archive, tmp_path / "out")


def test_an_archive_with_too_many_entries_or_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = a_tar(tmp_path / "x.tar", *((f"f{i}", b"data", {}) for i in range(4)))

    monkeypatch.setattr(archives, "MAX_FILES", 3)
    with pytest.raises(AssetSourceError, match="more than 3 entries"):
        unpack_archive(archive, tmp_path / "count")
    monkeypatch.setattr(archives, "MAX_FILES", 4)
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 15)
    with pytest.raises(AssetSourceError, match="more than 15 bytes"):
        unpack_archive(archive, tmp_path / "bytes")


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"nothing of the kind"])
@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_damaged_archive_is_told(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    whole = (
        a_zip(tmp_path / name, ("a", b"x" * 1000, 0)) if name == "x.zip" else a_tar(tmp_path / name, ("a", b"x", {}))
    )
    whole.write_bytes(damage(whole.read_bytes()))

    with pytest.raises(AssetSourceError, match="cannot be unpacked"):
        unpack_archive(whole, tmp_path / "out")
