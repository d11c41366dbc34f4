"""Checkpoints that several trials of one node want at the same time, from behind a URL."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Child
from trials.agent.home import Home
from trials.agent.moving import restoring
from trials.agent.moving.blobs import INCOMING_KEPT, BlobReceiver, drop_left, remove_oldest, unpack_code
from trials.checkpoints.verified_files import file_name
from trials.files import draft_of
from trials.stores import StoreError, fetch
from trials.wire.files import FILE_RESTORE
from trials.wire.launch import CheckpointRef
from trials.wire.messages import BlobSent

fsspec = pytest.importorskip("fsspec", reason="comes with torch")
WEIGHTS = b"the weights" * 1000
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
SOON_S = 10.0  # for what happens at once, on a machine that is busy


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store that is empty; ``when_half`` is called when half of a file was fetched."""
    found = type(fsspec.filesystem("memory"))  # each thread has an instance of its own

    def get_file(_: Any, source: str, target: str) -> None:
        data = fsspec.filesystem("memory").cat_file(source)
        with Path(target).open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            found.when_half()
            file.write(data[len(data) // 2 :])

    monkeypatch.setattr(found, "get_file", get_file, raising=False)
    monkeypatch.setattr(found, "when_half", staticmethod(lambda: None), raising=False)
    yield found
    fsspec.filesystem("memory").rm("/", recursive=True)


def content_of(path: Path) -> object:
    return {part.name: part.read_bytes() for part in path.iterdir()} if path.is_dir() else path.read_bytes()


@pytest.mark.parametrize("before", ["nothing", "file", "folder"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_two_that_fetch_to_one_place_at_once_both_have_all_of_it(
    memory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, before: str
) -> None:
    names = ["/saved/a.ckpt"] if kind == "file" else ["/saved/a.ckpt/manifest.json", "/saved/a.ckpt/__0_0.distcp"]
    for name in names:
        fsspec.filesystem("memory").pipe_file(name, WEIGHTS + name.encode())
    target = tmp_path / "target"
    if before == "file":
        target.write_bytes(b"damaged")
    elif before == "folder":
        target.mkdir()
        (target / "damaged").touch()
    both = threading.Barrier(2)
    monkeypatch.setattr(memory, "when_half", staticmethod(lambda: both.wait(SOON_S)))

    with ThreadPoolExecutor(2) as threads:
        for fetching in [threads.submit(fetch, "memory://saved/a.ckpt", target) for _ in range(2)]:
            fetching.result()

    whole = {name.rpartition("/")[2]: WEIGHTS + name.encode() for name in names}
    assert content_of(target) == (whole if kind == "folder" else WEIGHTS + names[0].encode())
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_what_could_not_be_fetched_leaves_nothing(memory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/saved/a.ckpt", WEIGHTS)
    (tmp_path / "target").write_bytes(b"an older one")

    def cut_off() -> None:
        raise ConnectionResetError("cut off")

    monkeypatch.setattr(memory, "when_half", staticmethod(cut_off))
    with pytest.raises(StoreError, match="cut off"):
        fetch("memory://saved/a.ckpt", tmp_path / "target")

    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target").read_bytes() == b"an older one"


def test_what_two_trials_of_a_node_want_is_fetched_once_and_both_have_it(
    memory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fsspec.filesystem("memory").pipe_file("/saved/a.ckpt", WEIGHTS)
    home, fetches = Home(tmp_path), list[None]()
    home.make()
    both = threading.Barrier(2)
    monkeypatch.setattr(memory, "when_half", staticmethod(lambda: fetches.append(None)))
    monkeypatch.setattr(restoring, "_local", after(restoring._local, lambda: both.wait(SOON_S)))

    listed = asyncio.run(laid_out_for(home, "1-a", "2-b"))

    assert [list(entry) for entry in listed] == [["digest", "step", "file"]] * 2
    for attempt, entry in zip(("1-a", "2-b"), listed, strict=True):
        assert (home.attempts / "e" / "1" / attempt / "restore" / entry["file"]).read_bytes() == WEIGHTS
    assert len(fetches) == 1


def after(work: Callable[..., Any], then: Callable[[], object]) -> Callable[..., Any]:
    """``work``, and what it returned once ``then`` has returned, too."""

    def both(*args: Any) -> Any:
        result = work(*args)
        then()
        return result

    return both


async def laid_out_for(home: Home, *attempts: str) -> list[dict[str, Any]]:
    """What restore.json of each attempt lists, where all of them want the same checkpoint at once."""

    async def ask(_: str) -> None:
        """There is no service here."""

    reference = CheckpointRef(digest=DIGEST, step=3, size=len(WEIGHTS), path="memory://saved/a.ckpt")
    blobs = BlobReceiver(home.incoming, ask=ask)
    folders = [home.attempts / "e" / "1" / attempt / "restore" for attempt in attempts]
    for folder in folders:
        folder.parent.mkdir(parents=True)
    await asyncio.gather(*(restoring.lay_out(home, folder, [reference], blobs) for folder in folders))
    return [json.loads((folder / FILE_RESTORE).read_bytes())["checkpoints"][0] for folder in folders]


def test_a_draft_of_what_is_wanted_is_not_removed_to_make_room(tmp_path: Path) -> None:
    for number in range(INCOMING_KEPT):
        (tmp_path / f"d{number}").touch()
    for name in ("wanted.4711.part", "wanted.part", "stale.4711.part"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))

    remove_oldest(tmp_path, keep=INCOMING_KEPT, but={"wanted"})

    kept = {path.name for path in tmp_path.iterdir()}
    assert {"wanted.4711.part", "wanted.part"} < kept
    assert "stale.4711.part" not in kept


# ── what was fetched goes again ─────────────────────────────────────────────────────────────────
def stored(number: int) -> CheckpointRef:
    """A checkpoint behind a URL; each number another one."""
    data = WEIGHTS + str(number).encode()
    fsspec.filesystem("memory").pipe_file(f"/saved/{number}.ckpt", data)
    digest = hashlib.sha256(data).hexdigest()
    return CheckpointRef(digest=digest, step=number, size=len(data), path=f"memory://saved/{number}.ckpt")


@pytest.mark.usefixtures("memory")
def test_what_was_fetched_and_is_damaged_does_not_stay(tmp_path: Path) -> None:
    home, wanted = Home(tmp_path), stored(1)
    home.make()
    fsspec.filesystem("memory").pipe_file("/saved/1.ckpt", b"damaged")

    assert listed_of(home, wanted)["damaged"]
    assert list(home.incoming.iterdir()) == []


def test_what_came_of_the_service_and_a_script_has_damaged_comes_anew(tmp_path: Path) -> None:
    home, folder = Home(tmp_path), tmp_path / "attempts" / "e" / "1" / "2-b" / "restore"
    home.make()
    folder.parent.mkdir(parents=True)
    (home.incoming / DIGEST).write_bytes(b"a script has written into it")

    async def send(digest: str) -> None:
        blobs.begin(BlobSent(digest=digest, size=len(WEIGHTS)))
        blobs.feed(WEIGHTS)

    blobs = BlobReceiver(home.incoming, ask=send)
    asyncio.run(restoring.lay_out(home, folder, [CheckpointRef(digest=DIGEST, step=3, size=len(WEIGHTS))], blobs))

    (entry,) = json.loads((folder / FILE_RESTORE).read_bytes())["checkpoints"]
    assert (folder / entry["file"]).read_bytes() == WEIGHTS


@pytest.mark.usefixtures("memory")
def test_of_what_was_fetched_from_a_store_the_oldest_go_though_no_blob_comes(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    found = [listed_of(home, stored(number), attempt=f"{number}-a") for number in range(1, INCOMING_KEPT + 4)]

    assert len(list(home.incoming.iterdir())) == INCOMING_KEPT
    assert all(Path(entry["file"]).read_bytes().startswith(WEIGHTS) for entry in found)


@pytest.mark.usefixtures("memory")
def test_where_files_have_one_name_only_a_trial_has_a_copy_of_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    home = Home(tmp_path)
    home.make()
    entry = listed_of(home, stored(1))
    shutil.rmtree(home.incoming)

    assert Path(entry["file"]).read_bytes() == WEIGHTS + b"1"


def test_what_a_killed_agent_has_fetched_in_part_goes_when_the_next_one_begins(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    incoming = home.incoming
    for number in range(INCOMING_KEPT + 2):
        (incoming / f"d{number}").touch()
        os.utime(incoming / f"d{number}", (number, number))
    (incoming / "d9.4711.part").mkdir()
    (incoming / "d9.4711.part" / "__0_0.distcp").touch()
    (incoming / "d8.part").touch()
    (home.outgoing / "n1").mkdir(parents=True)
    (home.outgoing / "n1" / "draft-1").touch()

    drop_left(home)

    assert not home.outgoing.exists()

    assert {path.name for path in incoming.iterdir()} == {f"d{number}" for number in range(2, INCOMING_KEPT + 2)}


def test_what_a_killed_agent_has_copied_into_its_own_store_in_part_goes_when_the_next_one_begins(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    home.make()
    whole = home.checkpoints / DIGEST
    whole.write_bytes(WEIGHTS)
    Path(draft_of(str(home.checkpoints / "d1"))).write_bytes(WEIGHTS[:3])
    sharded = Path(draft_of(str(home.checkpoints / "d2")))
    sharded.mkdir()
    (sharded / "__0_0.distcp").touch()

    drop_left(home)

    assert list(home.checkpoints.iterdir()) == [whole]


def test_what_a_killed_agent_has_unpacked_in_part_goes_when_the_next_one_begins(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz") as archive:
        archive.add(Path(__file__), "train.py")
    before = sorted(home.agent.iterdir())

    def work() -> None:
        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and str(arguments[0]).endswith("train.py"):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        unpack_code(home, tmp_path / "code.tar.gz", "digest")

    child = Child(work, tmp_path / "output")
    assert child.wait(60)
    assert child.code == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert sorted(home.agent.iterdir()) != before

    drop_left(home)

    assert sorted(home.agent.iterdir()) == before
    unpack_code(home, tmp_path / "code.tar.gz", "digest")


SHARD = b"a shard" * 100
MANIFEST = json.dumps({"files": {"__0_0.distcp": {"digest": hashlib.sha256(SHARD).hexdigest()}}}).encode()


def a_folder(path: Path, *, shard: bytes = SHARD, manifest: bytes = MANIFEST) -> str:
    """A checkpoint of several files; its digest."""
    path.mkdir(parents=True)
    (path / "manifest.json").write_bytes(manifest)
    (path / "__0_0.distcp").write_bytes(shard)
    return hashlib.sha256(manifest).hexdigest()


def listed_of(home: Home, *references: CheckpointRef, attempt: str = "2-b") -> dict[str, Any]:
    """What restore.json of a new attempt lists."""

    async def ask(_: str) -> None:
        """There is no service here."""

    folder = home.attempts / "e" / "1" / attempt / "restore"
    folder.parent.mkdir(parents=True)
    asyncio.run(restoring.lay_out(home, folder, references, BlobReceiver(home.incoming, ask=ask)))
    (entry,) = json.loads((folder / FILE_RESTORE).read_bytes())["checkpoints"]
    return entry | {"file": str(folder / entry["file"])} if entry["file"] else entry


@pytest.mark.parametrize("where", ["folder", "url"])
def test_where_a_part_of_a_folder_is_damaged_the_other_copy_is_used(memory: Any, tmp_path: Path, where: str) -> None:
    home = Home(tmp_path / "home")
    home.make()
    digest = a_folder(tmp_path / "store")
    a_folder(home.attempts / "e/1/1-a/checkpoints" / file_name(3, digest), shard=b"b" + SHARD[1:])
    if where == "url":
        fsspec.filesystem("memory").put(str(tmp_path / "store"), "/saved/a.ckpt", recursive=True)
    path = "memory://saved/a.ckpt" if where == "url" else str(tmp_path / "store")

    entry = listed_of(home, CheckpointRef(digest=digest, step=3, size=1, path=path))

    assert "problem" not in entry
    assert content_of(Path(entry["file"])) == {"manifest.json": MANIFEST, "__0_0.distcp": SHARD}


@pytest.mark.parametrize("manifest", [b"[]", b'{"files": []}', b'{"files": {"a": 1}}', b"[" * 100_000, b"\xff"])
def test_a_folder_whose_manifest_is_none_is_damaged(tmp_path: Path, manifest: bytes) -> None:
    home = Home(tmp_path / "home")
    home.make()
    digest = a_folder(tmp_path / "store", manifest=manifest)

    entry = listed_of(home, CheckpointRef(digest=digest, step=3, size=1, path=str(tmp_path / "store")))

    assert (entry["file"], entry["damaged"]) == ("", True)


@pytest.mark.parametrize("place", [f"checkpoints/{DIGEST}", "nodes/checkpoints/e/1/1-n1/s1.ckpt"])
def test_a_checkpoint_is_found_in_a_home_that_was_moved_since(place: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    kept = tmp_path / place
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(WEIGHTS)
    reference = CheckpointRef(digest=DIGEST, step=1, size=len(WEIGHTS), path=f"/before/{place}")

    found = restoring._local(home, home.attempts / "e" / "1" / "2-n2", reference)

    assert found.path == kept
