"""kill -9 while an agent fetches into its cache and while a command fetches into a folder: nothing half is used."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.api_server import serving
from tests.asset_trees import Tree, a_tree, added
from tests.forked import Child
from tests.integration.assets.test_killed_client import a_client
from trials.agent.moving.node_cache import NodeCache, newest_tree, remove_tree
from trials.stores import FileStore
from trials.wire.manifests import AssetFile, pieces_of
from tuner_service.assets.fetching import get_asset
from tuner_service.assets.sources import AssetSourceError

STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.rmdir", "socket.connect")
TREE = a_tree({"a": b"a", "deep/b": b"bb", "deep/c": b"c" * 100_000})


def killed_at(step: int, work: Callable[[], object], output: Path) -> bool:
    """Whether it was killed at that call of those that change files, and had not ended before."""
    count = itertools.count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and next(count) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        sys.addaudithook(hook)
        work()

    child = Child(watched, output)
    assert child.wait(60)
    assert child.code in {0, -signal.SIGKILL}, output.read_text()
    return child.code != 0


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fetched(home: Path, name: str, target: Path) -> None:
    with closing(a_client(home)) as client:
        get_asset(client, name, target)


def shelved(root: Path, tree: Tree) -> FileStore:
    for data in (tree.manifest, *tree.files.values()):
        digest = a_digest(data)
        (root / "files" / digest[:2]).mkdir(parents=True, exist_ok=True)
        (root / "files" / digest[:2] / digest).write_bytes(data)
    return FileStore(str(root))


def a_digest(data: bytes) -> str:
    return AssetFile(path="a", size=len(data), pieces=pieces_of(data)).digest


def test_an_agent_that_is_killed_while_it_fetches_leaves_no_tree_that_is_not_whole(tmp_path: Path) -> None:
    store = shelved(tmp_path / "store", TREE)
    for step in itertools.count(1, 3):
        folder = tmp_path / f"cache{step}"

        def fetch(folder: Path = folder) -> Path:
            cache = NodeCache(folder, in_use=set)
            cache.store = store
            return asyncio.run(cache.get(TREE.id))

        was_killed = killed_at(step, fetch, tmp_path / "output")
        left = newest_tree(folder / TREE.id)
        assert left is None or content(left) == TREE.files

        tree = fetch()

        assert content(tree) == TREE.files
        assert {path.name for path in tree.parent.iterdir()} == {tree.name, f"{tree.name}.files"}
        remove_tree(tree)
        if not was_killed:
            assert step > 10
            return


def test_a_command_that_is_killed_while_it_fetches_goes_on_and_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as api:
        added(api, TREE, name="digits")
        for step in itertools.count(1, 3):
            place = tmp_path / f"to{step}"
            place.mkdir()
            was_killed = killed_at(step, lambda at=place: fetched(home, "digits", at / "out"), tmp_path / "o")
            if (place / "out").exists():
                assert content(place / "out") == TREE.files
            else:
                fetched(home, "digits", place / "out")

            assert content(place / "out") == TREE.files
            assert [path.name for path in place.iterdir()] == ["out"]
            if not was_killed:
                assert step > 10
                return


def test_what_was_fetched_of_another_asset_is_no_part_of_this_one(tmp_path: Path) -> None:
    """Two checkpoints have the same names and sizes: a fetch of one that was broken off may not become the other's."""
    home = tmp_path / "home"
    home.mkdir()
    one, two = a_tree({"weights": b"1" * 50, "more": b"m"}), a_tree({"weights": b"2" * 50})
    with serving(home) as api:
        added(api, one, name="one")
        added(api, two, name="two")
        for step in itertools.count(1, 2):
            if not killed_at(step, lambda: fetched(home, "one", tmp_path / "out"), tmp_path / "o"):
                break
            assert not (tmp_path / "out").exists()
            fetched(home, "two", tmp_path / "out")
            assert content(tmp_path / "out") == two.files
            (tmp_path / "out" / "weights").unlink()
            (tmp_path / "out").rmdir()
        assert content(tmp_path / "out") == one.files


def test_two_commands_do_not_fetch_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with serving(home) as api:
        added(api, TREE, name="digits")
        refused: list[str] = []

        def second(_what: str, _done: int, _total: int | None) -> None:
            if not refused:
                with pytest.raises(AssetSourceError) as caught:
                    fetched(home, "digits", tmp_path / "out")
                refused.append(str(caught.value))

        with closing(a_client(home)) as first:
            get_asset(first, "digits", tmp_path / "out", told=second)

    assert "another command is fetching into" in refused[0]
    assert content(tmp_path / "out") == TREE.files
