"""Adding and getting assets over a real socket: nothing is read or sent twice, and what is broken off goes on."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, ApiService
from trials.wire.manifests import PIECE_BYTES
from tuner_service.assets.adding import Addition, add_asset
from tuner_service.assets.fetching import get_asset
from tuner_service.assets.sources import AssetSourceError
from tuner_service.client import Client, UnreachableError

BREAKS = 10


class CountingClient(Client):
    """Remembers each piece that it sent; breaks off before the one of that number."""

    sent: Counter[str]
    begun: Iterator[int]  # several send at once: each has its number before it sends
    breaks_at: int | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sent, self.begun = Counter(), itertools.count()

    def another(self) -> CountingClient:
        other = CountingClient(self.url, ADMIN_TOKEN)
        other.sent, other.begun, other.breaks_at = self.sent, self.begun, self.breaks_at
        return other

    def send_piece(self, digest: str, data: bytes) -> None:
        if self.breaks_at is not None and next(self.begun) >= self.breaks_at:
            raise UnreachableError("broken off")
        with closing(Client(self.url, ADMIN_TOKEN)) as client:
            client.send_piece(digest, data)
        self.sent[digest] += 1


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiService]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(tmp_path) as api:
        api.services.assets.store.begin_staging()
        yield api


@pytest.fixture
def near(api: ApiService, tmp_path: Path) -> Iterator[Client]:
    """Of the service's own machine and home."""
    url = json.loads((tmp_path / "service.json").read_text())["url"]
    client = Client(url, ADMIN_TOKEN, admit=lambda connection: None)
    yield client
    client.close()


@pytest.fixture
def far(api: ApiService, near: Client) -> Iterator[CountingClient]:
    """Of another machine."""
    client = CountingClient(near.url, ADMIN_TOKEN)
    yield client
    client.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    for i in range(30):
        place = folder / f"deep/f{i}"
        place.write_bytes(b"%d" % i)
        os.utime(place, ns=(1, 1))
    (folder / "large").write_bytes(b"0" * PIECE_BYTES + b"1" * PIECE_BYTES + b"2")
    (folder / "run").write_bytes(b"#!/bin/sh")
    (folder / "run").chmod(0o755)
    return folder


def content(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(folder)): (
            path.read_bytes(),
            os.access(path, os.X_OK) and bool(path.stat().st_mode & 0o100),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def an_addition(source: Path, **fields: Any) -> Addition:
    return Addition(source=source, kind="dataset", name="digits", **fields)


def test_the_same_asset_from_this_machine_and_from_another(
    near: Client, far: CountingClient, source: Path, tmp_path: Path
) -> None:
    first = add_asset(near, an_addition(source))
    second = add_asset(far, an_addition(source))

    assert first["id"] == second["id"]
    assert (first["version"], second["version"]) == (1, 1)
    assert far.sent == {}
    for client, name in ((near, "near"), (far, "far")):
        assert content(get_asset(client, "digits", tmp_path / name)) == content(source)


@pytest.mark.parametrize("name", ["n" * 255, "名" * 85], ids=["of ASCII", "of three bytes a character"])
def test_a_file_with_the_longest_name_there_is_comes_back(
    near: Client, far: CountingClient, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / name).write_bytes(b"content")
    add_asset(near, an_addition(folder))

    for client, target in ((near, "near"), (far, "far")):
        assert content(get_asset(client, "digits", tmp_path / target)) == content(folder)


def test_it_comes_into_the_folder_that_a_link_means(near: Client, source: Path, tmp_path: Path) -> None:
    add_asset(near, an_addition(source))
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")

    get_asset(near, "digits", tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "disk") == content(source)


def test_from_this_machine_nothing_is_sent_and_no_file_is_a_persons(
    api: ApiService, near: Client, source: Path
) -> None:
    requests = api.services.assets.uploads.receive
    sent: list[str] = []
    api.services.assets.uploads.receive = lambda digest: (sent.append(digest), requests(digest))[1]  # type: ignore[method-assign]

    view = add_asset(near, an_addition(source))

    assert sent == []
    store = api.services.assets.store
    for file in store.manifest(view["id"]):
        place = store.path_of(file.digest)
        assert place is not None
        assert (place.stat().st_nlink, place.stat().st_mode & 0o222) == (1, 0)
        assert place.stat().st_ino != (source / file.path).stat().st_ino
    assert list(store.staging.iterdir()) == []


def test_one_changed_file_sends_one_file(far: CountingClient, source: Path) -> None:
    add_asset(far, an_addition(source))
    far.sent.clear()
    (source / "deep/f3").write_bytes(b"changed")

    view = add_asset(far, an_addition(source))

    assert view["version"] == 2
    assert far.sent.total() == 2  # the file and the manifest


@pytest.mark.parametrize("breaks_at", range(1, 33, 33 // BREAKS))
def test_broken_off_anywhere_no_finished_piece_is_sent_again(
    api: ApiService, far: CountingClient, source: Path, breaks_at: int
) -> None:
    far.breaks_at = breaks_at
    with pytest.raises(UnreachableError):
        add_asset(far, an_addition(source))
    assert api.asset_rows.asset_ids() == []
    far.breaks_at = None

    add_asset(far, an_addition(source))

    assert set(far.sent.values()) == {1}


def test_two_uploads_of_the_same_content_at_once(api: ApiService, near: Client, source: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    clients = [CountingClient(near.url, ADMIN_TOKEN) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(add_asset, client, an_addition(source)) for client in (*clients, near)]
        views = [future.result() for future in futures]

    assert len({view["id"] for view in views}) == 1
    assert {view["version"] for view in views} == {1}
    for client in clients:
        client.close()
    store = api.services.assets.store
    assert all(store.has(file.digest) for file in store.manifest(views[0]["id"]))


def test_what_the_cache_knows_is_not_read(near: Client, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_service.assets.digest_cache.SETTLED_NS", -1_000_000_000_000)
    first = add_asset(near, an_addition(source))
    told: list[tuple[str, int, int]] = []

    second = add_asset(near, an_addition(source), told=lambda *what: told.append(what))

    assert second["id"] == first["id"]
    assert told == []


def test_a_disk_that_is_full_while_the_client_writes_is_said_and_what_was_written_is_kept(
    api: ApiService, near: Client, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = api.services.assets.store.staging
    written = 0

    def full(descriptor: int, data: bytes | memoryview) -> None:
        nonlocal written
        if written > PIECE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += os.write(descriptor, data)

    monkeypatch.setattr("tuner_service.assets.hashing.write_all", full)
    with pytest.raises(AssetSourceError, match="No space left on device; add it again once that is mended"):
        add_asset(near, an_addition(source))
    kept = {path.name: path.stat().st_ino for path in staging.iterdir()}
    assert kept
    assert not [name for name in kept if name.startswith("draft-")]
    assert api.client.get("/api/v1/assets").json()["items"] == []

    monkeypatch.undo()
    add_asset(near, an_addition(source))
    files = api.services.assets.store.folder
    assert files is not None
    stored = {path.name: path.stat().st_ino for path in files.rglob("*") if path.is_file()}
    assert kept.items() <= stored.items()


def test_an_empty_folder_is_no_asset(near: Client, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(AssetSourceError, match="holds no file"):
        add_asset(near, an_addition(tmp_path / "empty"))


def test_a_folder_that_holds_something_is_not_written_into(near: Client, source: Path, tmp_path: Path) -> None:
    add_asset(near, an_addition(source))

    with pytest.raises(AssetSourceError, match="is there already"):
        get_asset(near, "digits", source)


def test_a_damaged_file_of_the_store_is_not_laid_out(
    api: ApiService, near: Client, far: CountingClient, source: Path, tmp_path: Path
) -> None:
    view = add_asset(near, an_addition(source))
    store = api.services.assets.store
    place = store.path_of(next(f.digest for f in store.manifest(view["id"]) if f.path == "run"))
    assert place is not None
    place.chmod(0o600)
    place.write_bytes(b"#!/bin/zz")

    for client in (near, far):
        with pytest.raises(AssetSourceError, match="run came damaged"):
            get_asset(client, "digits", tmp_path / "out")
        assert not (tmp_path / "out").exists()
