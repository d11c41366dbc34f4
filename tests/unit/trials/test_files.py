"""The one way to read and write a file whole: what it holds, who may use it, and that nothing stays open or behind."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trials import files
from trials.files import (
    BY_UMASK,
    create_once,
    is_full_disk,
    is_in_the_way,
    open_file,
    put_in_place,
    read_bytes,
    read_json,
    read_record,
    sync_tree,
    write_all,
    write_atomically,
    write_plainly,
)

CHUNK = files._READ_BYTES


@pytest.fixture(autouse=True)
def nothing_stays_open(tmp_path: Path) -> Iterator[None]:
    yield
    links = [link_of(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert [link for link in links if link.startswith(str(tmp_path))] == []


def link_of(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""  # the one that listed them


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_and_no_draft_stays(tmp_path: Path) -> None:
    for data in (b"one", b"", b"three" * CHUNK):
        write_atomically(f"{tmp_path}/file", data, durable=True)
        assert read_bytes(f"{tmp_path}/file") == data

    assert names(tmp_path) == ["file"]


def test_a_file_is_its_owners_alone_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_atomically(f"{tmp_path}/own", b"")
        create_once(f"{tmp_path}/once", b"", access=BY_UMASK)
    finally:
        os.umask(umask)

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("own", "once")] == [0o600, 0o640]


def test_of_several_that_create_a_file_the_first_one_does(tmp_path: Path) -> None:
    assert create_once(f"{tmp_path}/file", b"first", durable=True) is True
    assert create_once(f"{tmp_path}/file", b"second", durable=True) is False

    assert (tmp_path / "file").read_bytes() == b"first"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [write_atomically, create_once])
def test_what_cannot_be_written_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str, bytes], object]
) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", no_room)
        with pytest.raises(OSError, match="No space left"):
            write(f"{tmp_path}/file", b"data")

    assert names(tmp_path) == []


def test_a_file_that_was_made_by_others_is_put_in_place_of_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "draft").write_bytes(b"new")
    (tmp_path / "file").write_bytes(b"old")

    put_in_place(f"{tmp_path}/draft", f"{tmp_path}/file")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


def test_a_plain_write_sets_mode_and_times(tmp_path: Path) -> None:
    write_plainly(f"{tmp_path}/file", b"data", mode=0o640, times_ns=(1_000_000_000, 2_000_000_001))

    found = (tmp_path / "file").stat()
    assert (found.st_mode & 0o777, found.st_atime_ns, found.st_mtime_ns) == (0o640, 1_000_000_000, 2_000_000_001)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_file_of_any_size_is_read_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    write_plainly(f"{tmp_path}/file", data)

    assert read_bytes(f"{tmp_path}/file") == data


@pytest.mark.parametrize("size", [10, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_a_record_of_just_the_bound_is_read_and_one_byte_more_is_none(tmp_path: Path, size: int) -> None:
    text = json.dumps({"a": "x" * (size - 9)}).encode()
    assert len(text) == size
    (tmp_path / "file").write_bytes(text)

    assert read_record(f"{tmp_path}/file", limit=max(size, CHUNK)) == json.loads(text)
    if size > CHUNK:
        assert read_json(f"{tmp_path}/file", limit=size - 1) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_object_is_no_record(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)

    assert read_json(f"{tmp_path}/file") is None
    with pytest.raises(ValueError, match=r"."):
        read_record(f"{tmp_path}/file")


def test_only_a_plain_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    descriptor = open_file(f"{tmp_path}/file")
    assert os.read(descriptor, 10) == b"data"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    for name in ("link", "pipe", ".", "missing"):
        with pytest.raises(OSError, match=r"."):
            open_file(f"{tmp_path}/{name}")


def test_a_tree_is_synced_with_each_folder_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(link_of(Path(f"/proc/self/fd/{descriptor}"))))

    sync_tree(str(tmp_path))

    assert set(synced) == {str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b", f"{tmp_path}/a/b/file"}


def test_a_write_that_takes_a_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    write_all(descriptor, b"0123456789")
    os.close(descriptor)

    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    ("error", "full", "in_the_way"),
    [
        (OSError(errno.ENOSPC, "no room"), True, False),
        (OSError(errno.EDQUOT, "no room"), True, False),
        (OSError([("a", "b", f"[Errno {errno.ENOSPC}] no room")]), True, False),
        (OSError([("a", "b", f"[Errno {errno.EIO}] broken")]), False, False),
        (OSError(errno.EIO, "broken"), False, False),
        (OSError(errno.ENOTDIR, "a file"), False, True),
    ],
)
def test_errors_of_a_full_disk_and_of_what_is_in_the_way_are_told_apart(
    error: OSError, full: bool, in_the_way: bool
) -> None:
    assert (is_full_disk(error), is_in_the_way(error)) == (full, in_the_way)
