"""Assets on a node: fetched once, shared, bounded, and never given damaged."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from tests.deep_folders import deepen
from trials.agent.moving import node_cache
from trials.agent.moving.node_cache import AssetMissingError, NodeCache, remove_tree
from trials.stores import FileStore
from trials.wire.manifests import AssetFile, pieces_of, write_manifest


class Shelf:
    """A store with assets of given files, and a cache that fetches from it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "store"
        self.used: set[str] = set()
        self.cache = NodeCache(folder / "cache", in_use=lambda: self.used)
        self.cache.store = FileStore(str(self.root))

    def put(self, files: dict[str, bytes]) -> str:
        listed = [AssetFile(path=p, size=len(data), pieces=pieces_of(data)) for p, data in files.items()]
        manifest = write_manifest(listed)
        for data in (*files.values(), manifest):
            self.write(_digest(data), data)
        return _digest(manifest)

    def write(self, digest: str, data: bytes) -> None:
        self.place(digest).parent.mkdir(parents=True, exist_ok=True)
        self.place(digest).write_bytes(data)

    def place(self, digest: str) -> Path:
        return self.root / "files" / digest[:2] / digest

    def get(self, digest: str) -> Path:
        return asyncio.run(self.cache.get(digest))


def _digest(data: bytes) -> str:
    return AssetFile(path="a", size=len(data), pieces=pieces_of(data)).digest


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def content(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def test_a_tree_holds_the_files_of_its_asset_and_nobody_may_write_there(shelf: Shelf) -> None:
    files = {"a.txt": b"1", "sub/b.bin": b"\0" * 5_000_000, "sub/empty": b""}

    tree = shelf.get(shelf.put(files))

    assert content(tree) == files
    assert {path.stat().st_mode & 0o222 for path in (tree, *tree.rglob("*"))} == {0}
    remove_tree(tree)


def test_however_many_trials_wait_for_an_asset_it_is_fetched_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = shelf.put({"a": b"1"})
    fetched: list[str] = []
    bring = node_cache._bring
    monkeypatch.setattr(node_cache, "_bring", lambda s, f, t: (fetched.append(f.path), bring(s, f, t)))

    async def eight() -> set[Path]:
        return set(await asyncio.gather(*(shelf.cache.get(digest) for _ in range(8))))

    assert len(asyncio.run(eight())) == 1
    shelf.get(digest)
    assert fetched == ["a"]


@pytest.mark.parametrize("damage", ["changed", "touched", "removed", "added", "a link"])
def test_a_damaged_tree_is_noticed_and_fetched_anew_beside_the_one_that_others_have(shelf: Shelf, damage: str) -> None:
    digest = shelf.put({"a": b"1", "sub/b": b"2"})
    first = shelf.get(digest)
    for path in (first, first / "sub", first / "a"):
        path.chmod(0o700)
    match damage:
        case "changed":
            (first / "a").write_bytes(b"9")
        case "touched":
            os.utime(first / "a", ns=(1, 1))
        case "removed":
            (first / "a").unlink()
        case "added":
            (first / "sub" / "c").write_bytes(b"")
        case _:
            (first / "a").unlink()
            (first / "a").symlink_to("/etc/passwd")

    shelf.used = {digest}
    second = shelf.get(digest)

    assert second != first
    assert content(second) == {"a": b"1", "sub/b": b"2"}
    assert first.is_dir()
    shelf.used = set()
    shelf.get(shelf.put({"other": b"3"}))
    assert not first.exists()
    assert shelf.get(digest) == second


def test_bytes_that_are_not_those_of_the_digest_are_never_given(shelf: Shelf) -> None:
    digest = shelf.put({"a": b"1"})
    shelf.write(_digest(b"1"), b"2")

    with pytest.raises(AssetMissingError, match="a is damaged in the store"):
        shelf.get(digest)

    shelf.write(_digest(b"1"), b"1")
    assert content(shelf.get(digest)) == {"a": b"1"}


def test_what_was_damaged_on_its_way_is_fetched_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = shelf.put({"a": b"1"})
    copied = node_cache._copied
    answers = iter(["0" * 64])
    monkeypatch.setattr(node_cache, "_cloned", lambda *_: None)
    monkeypatch.setattr(node_cache, "_copied", lambda s, f, t: (copied(s, f, t), next(answers, None) or f.digest)[1])

    assert content(shelf.get(digest)) == {"a": b"1"}


def test_what_the_store_does_not_have_is_said(shelf: Shelf) -> None:
    digest = shelf.put({"a": b"1"})
    shelf.place(_digest(b"1")).unlink()

    with pytest.raises(AssetMissingError, match=r"a .* is not in the store"):
        shelf.get(digest)
    with pytest.raises(AssetMissingError, match="is not in the store"):
        shelf.get("0" * 64)


def test_a_fetch_that_was_killed_leaves_nothing_that_is_taken_for_a_tree(shelf: Shelf) -> None:
    digest = shelf.put({"a": b"1"})
    cut_off = shelf.cache._folder / digest / "1"
    cut_off.mkdir(parents=True)
    (cut_off / "half").write_bytes(b"")
    (cut_off / "half").chmod(0o400)
    cut_off.chmod(0o500)

    assert content(shelf.get(digest)) == {"a": b"1"}


def test_past_its_bound_the_least_recently_used_goes_but_none_in_use(shelf: Shelf) -> None:
    first, second, third = (shelf.put({"a": bytes([n]) * 40}) for n in range(3))
    trees = {digest: shelf.get(digest) for digest in (first, second)}
    for age, digest in ((10, first), (20, second)):
        listing = trees[digest].with_name(f"{trees[digest].name}.files")
        os.utime(listing, (1_000_000 - age,) * 2)
    shelf.cache.limit_bytes = 100
    shelf.used = {second}

    shelf.get(third)

    assert not trees[first].exists()
    assert trees[second].is_dir()


def test_what_is_held_for_a_launch_is_not_removed(shelf: Shelf) -> None:
    first, second = (shelf.put({"a": bytes([n]) * 40}) for n in range(2))
    shelf.cache.limit_bytes = 50
    with shelf.cache.holding([first]):
        tree = shelf.get(first)
        shelf.get(second)
        assert tree.is_dir()


def test_a_full_disk_makes_room_of_what_nobody_uses_and_else_is_said(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, digest = shelf.put({"a": b"old"}), shelf.put({"a": b"new"})
    tree = shelf.get(old)
    copied = node_cache._copied

    def full_while_the_old_is_there(store: FileStore, file: AssetFile, target: Path) -> str:
        if tree.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return copied(store, file, target)

    monkeypatch.setattr(node_cache, "_cloned", lambda *_: None)
    monkeypatch.setattr(node_cache, "_copied", full_while_the_old_is_there)
    shelf.used = {old}
    with pytest.raises(OSError, match="No space"):
        shelf.get(digest)
    assert list((shelf.cache._folder / digest).iterdir()) == []

    shelf.used = set()
    assert content(shelf.get(digest)) == {"a": b"new"}


def test_what_a_killed_agent_has_laid_out_or_removed_in_part_goes_when_the_next_one_begins(shelf: Shelf) -> None:
    tree = shelf.get(shelf.put({"a": b"1"}))
    half = tree.with_name("2")
    for left in (half / "sub", tree.with_name("gone-3") / "sub", tree.parent.with_name("other") / "1"):
        left.mkdir(parents=True)
        (left / "b").write_bytes(b"2")
        left.chmod(0o500)
    tree.with_name(".2.files.77.tmp").touch()
    tree.parent.with_name("empty").mkdir()

    shelf.cache.drop_left().join()

    assert {path.name for path in tree.parent.iterdir()} == {"1", "1.files"}
    assert sorted(path.name for path in tree.parent.parent.iterdir()) == sorted([tree.parent.name, "other"])
    assert list(tree.parent.with_name("other").iterdir()) == []
    assert shelf.get(tree.parent.name) == tree
    remove_tree(tree)


def test_a_tree_in_which_a_trial_that_is_root_made_deep_folders_is_damaged_and_can_be_removed(shelf: Shelf) -> None:
    digest = shelf.put({"a": b"1"})
    before = shelf.get(digest)
    before.chmod(0o700)
    deepen(before / "deep")

    after = shelf.get(digest)
    assert after != before
    assert content(after) == {"a": b"1"}

    remove_tree(before)
    assert not before.exists()
    remove_tree(after)


def test_what_lies_in_a_tree_is_listed_in_the_order_of_names_folders_where_theirs_stand(tmp_path: Path) -> None:
    """A listing of an earlier version is compared with it as it is."""
    for path in ("b/z", "b/a/x", "a", "c", "b.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()

    listed = [line.rpartition(" ")[2] for line in node_cache.lines_of(tmp_path)]

    assert listed == ["'a'", "'b/a/x'", "'b/z'", "'b.txt'", "'c'"]
