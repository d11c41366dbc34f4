"""The checkpoint store behind a path, and behind URLs of fsspec."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trials import stores
from trials.agent.moving.checkpoint_store import DRAFTS_THREAD, LOOKED_AT, CheckpointStore
from trials.files import draft_of, put_in_place
from trials.stores import DRAFT_KEPT_S, StoreError, StoreUnusableError, drop_draft, fetch, is_url

fsspec = pytest.importorskip("fsspec", reason="comes with torch")
SOON_S = 10.0  # for what happens at once, on a machine that is busy


@pytest.fixture(params=["folder", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A kind of store that is empty."""
    if request.param == "memory":
        yield f"memory://{tmp_path.name}/deep"
        fsspec.filesystem("memory").rm("/", recursive=True)
    else:
        yield ("file://" if request.param == "file" else "") + str(tmp_path / "store" / "deep")


def exists(location: str) -> bool:
    if not is_url(location):
        return Path(location).exists()
    fs, path = fsspec.core.url_to_fs(location)
    return bool(fs.exists(path))


def test_a_file_is_put_fetched_and_removed(root: str, tmp_path: Path) -> None:
    store, source, target = CheckpointStore(root), tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"weights")

    location = store.put(source, "exp/1/1-n/name.ckpt")
    fetch(location, target)

    assert location == f"{root}/exp/1/1-n/name.ckpt"
    assert target.read_bytes() == b"weights"
    store.remove(location)
    assert not exists(location)
    store.remove(location)


def test_a_folder_is_put_fetched_and_removed(root: str, tmp_path: Path) -> None:
    store, source, target = CheckpointStore(root), tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("manifest.json", ".metadata", "__0_0.distcp"):
        (source / name).write_text(name)

    location = store.put(source, "exp/1/1-n/name.ckpt")
    fetch(location, target)

    assert {path.name: path.read_text() for path in target.iterdir()} == {p.name: p.name for p in source.iterdir()}
    store.remove(store.location("exp"))
    assert not exists(location)


def test_putting_it_again_is_harmless(root: str, tmp_path: Path) -> None:
    store, source = CheckpointStore(root), tmp_path / "source"
    for content in (b"one", b"two!"):
        source.unlink(missing_ok=True)
        source.write_bytes(content)
        fetch(store.put(source, "exp/name"), tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == content
    assert [path.name for path in tmp_path.rglob(".*.tmp")] == []


def test_what_is_not_there_is_an_error_that_names_it(root: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="exp/nothing"):
        fetch(f"{root}/exp/nothing", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_nothing_is_removed_that_is_not_of_the_store(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    for store in (CheckpointStore(str(tmp_path / "store")), CheckpointStore("")):
        store.remove(str(outside))
        store.remove(f"{tmp_path}/store/../outside")
    assert outside.exists()
    assert not CheckpointStore("").is_named


def test_a_kind_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("x")
    with pytest.raises(StoreUnusableError, match=r"nosuchkind.*install what this kind of URL needs"):
        CheckpointStore("nosuchkind://bucket").put(tmp_path / "source", "name")


@pytest.mark.parametrize("can", ["nothing", "ranges", "clones"])
def test_what_is_put_into_a_folder_is_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: str
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    if can != "clones":
        monkeypatch.setattr("trials.stores.fcntl.ioctl", cannot)
    if can == "nothing":
        monkeypatch.setattr(os, "copy_file_range", cannot)
    source, content = tmp_path / "source", os.urandom(1 << 20) * 9
    source.write_bytes(content)

    location = CheckpointStore(str(tmp_path / "store")).put(source, "exp/name")
    with source.open("r+b") as file:
        file.write(b"damage")

    assert Path(location).read_bytes() == content


def test_drafts_of_nodes_that_died_while_they_copied_go_after_a_day_and_those_that_are_written_stay(
    tmp_path: Path,
) -> None:
    source, root = tmp_path / "source", tmp_path / "store"
    source.write_bytes(b"weights")
    store = CheckpointStore(str(root))
    store.put(source, "exp/1/1-n/a.ckpt")  # a store that was looked at now
    wait_for_looking()
    dead, dead_folder = a_draft(root / "exp/1/1-n/b.ckpt"), a_draft(root / "other/22/3-m/c.ckpt", "part")
    written, written_folder = a_draft(root / "exp/2/1-k/b.ckpt"), a_draft(root / "exp/3/1-l/c.ckpt", "part")
    strange = root / "exp/1/1-n/.b.ckpt.tmp"  # no draft of ours
    strange.touch()
    for path in (dead, dead_folder, dead_folder / "part", written_folder, strange, root / "exp/1/1-n/a.ckpt"):
        os.utime(path, (0, 0))

    store.put(source, "exp/1/1-n/d.ckpt")
    wait_for_looking()
    assert dead.exists(), "it was looked at less than a day ago"
    os.utime(root / LOOKED_AT, (0, 0))
    store.put(source, "exp/1/1-n/e.ckpt")
    wait_for_looking()

    assert not dead.exists()
    assert not dead_folder.exists()
    kept = [written, written_folder / "part", strange]
    whole = [root / f"exp/1/1-n/{name}.ckpt" for name in "ade"]
    assert {path for path in root.rglob("*") if path.is_file()} == {*kept, *whole, root / LOOKED_AT}


def test_old_drafts_are_looked_for_where_the_last_look_is_in_the_future(tmp_path: Path) -> None:
    """The clock was set back, or that of another node is ahead."""
    source, root = tmp_path / "a", tmp_path / "store"
    source.write_bytes(b"weights")
    dead = a_draft(root / "exp/1/1-n/b.ckpt")
    os.utime(dead, (0, 0))
    (root / LOOKED_AT).touch()
    os.utime(root / LOOKED_AT, (2**32, 2**32))

    CheckpointStore(str(root)).put(source, "exp/1/1-n/a.ckpt")
    wait_for_looking()

    assert not dead.exists()


def test_a_checkpoint_is_put_where_no_thread_can_look_for_old_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    source = tmp_path / "a"
    source.write_bytes(b"weights")

    location = CheckpointStore(str(tmp_path / "store")).put(source, "exp/1/1-n/a.ckpt")

    assert Path(location).read_bytes() == b"weights"


def a_draft(target: Path, *parts: str) -> Path:
    """Of a file; with ``parts``, of a folder."""
    draft = Path(draft_of(str(target)))
    draft.parent.mkdir(parents=True, exist_ok=True)
    if not parts:
        draft.write_bytes(b"wei")
    for part in parts:
        draft.mkdir(exist_ok=True)
        (draft / part).write_bytes(b"wei")
    return draft


def wait_for_looking() -> None:
    for thread in threading.enumerate():
        if thread.name == DRAFTS_THREAD:
            thread.join(SOON_S)
            assert not thread.is_alive()


def test_a_draft_that_is_dropped_while_its_node_goes_on_after_all_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node was suspended for more than a day. It is told, and tries again."""
    source, target = tmp_path / "source", tmp_path / "store/exp/1/1-n/a.ckpt"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text(name)
    clear = stores.clear

    def clear_and_go_on(path: Path) -> None:
        """The sweeper removes what it has put aside file by file: in between, the other node takes its draft's name."""
        if path.is_dir() and path.parent == target.parent:
            (path / "a").unlink()
            with pytest.raises(FileNotFoundError):
                put_in_place(str(draft), str(target))
        clear(path)

    draft = a_draft(target, "a", "b")
    monkeypatch.setattr(stores, "clear", clear_and_go_on)
    drop_draft(draft, now=time.time() + 2 * DRAFT_KEPT_S)
    monkeypatch.undo()

    assert list(target.parent.iterdir()) == []
    CheckpointStore(str(tmp_path / "store")).put(source, "exp/1/1-n/a.ckpt")
    assert sorted(path.name for path in target.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("what", ["pipe", "endless", "folder in it"])
def test_what_is_no_plain_file_is_not_put_and_nothing_is_left(tmp_path: Path, what: str) -> None:
    source, store = tmp_path / "source", tmp_path / "store"
    if what == "pipe":
        os.mkfifo(source)
    elif what == "endless":
        source.symlink_to("/dev/zero")
    else:
        (source / "folder").mkdir(parents=True)

    with pytest.raises(StoreError):
        CheckpointStore(str(store)).put(source, "exp/name")
    assert list((store / "exp").iterdir()) == []


@pytest.mark.parametrize("what", ["pipe", "endless", "pipe in it", "nothing"])
def test_what_is_no_plain_file_is_not_put_behind_a_url_and_keeps_nobody_waiting(tmp_path: Path, what: str) -> None:
    source = tmp_path / "source"
    if what == "pipe":
        os.mkfifo(source)
    elif what == "endless":
        source.symlink_to("/dev/zero")
    elif what == "pipe in it":
        source.mkdir()
        os.mkfifo(source / "part")

    with pytest.raises(StoreError):
        CheckpointStore(f"file://{tmp_path}/store").put(source, "exp/name")
    assert not (tmp_path / "store").exists()


def test_what_takes_the_place_of_a_file_while_it_is_put_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    local = fsspec.filesystem("file")
    put_file = type(local).put_file

    def exchanged(self: object, path: str, target: str, **how: object) -> None:
        source.unlink(missing_ok=True)
        os.mkfifo(source)
        put_file(self, path, target, **how)

    (tmp_path / "store/exp").mkdir(parents=True)
    monkeypatch.setattr(type(local), "put_file", exchanged)

    location = CheckpointStore(f"file://{tmp_path}/store").put(source, "exp/name")

    assert (tmp_path / "store/exp/name").read_bytes() == b"weights"
    assert location.endswith("/exp/name")
