"""kill -9 of the service at every step of a commit, and collectors beside it: nothing half is seen, nothing is lost."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.asset_trees import Tree, a_tree
from tests.forked import Child
from trials.stores import FileStore
from trials.wire.manifests import PIECE_BYTES, AssetFile, pieces_of
from tuner_service.domain.assets import AssetKind
from tuner_service.domain.errors import ConflictError, StorageError, UnavailableError
from tuner_service.service.assets.asset_store import LEASE_S, AssetStore
from tuner_service.service.assets.collecting import FRESH_S, collect, damages, missing_assets
from tuner_service.service.assets.uploads import NewAsset, Uploads
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "shutil.rmtree", "sqlite3.connect")
LARGE = b"0" * PIECE_BYTES + b"1"
TREE = a_tree({"a": b"a", "deep/b": b"b", "large": LARGE})


class StillClock:
    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.at = now

    def now(self) -> float:
        return self.at


def opened(home: Path, clock: StillClock) -> tuple[SqlStore, AssetStore]:
    home.mkdir(exist_ok=True)
    database = open_store(home / "tuner.db", clock)
    store = AssetStore(str(home / "assets"), home=home, lineage=database.lineage)
    store.begin_staging()
    store.own(list(database.assets.asset_ids()))
    return database, store


def described(tree: Tree) -> AssetFile:
    return AssetFile(path="manifest", size=len(tree.manifest), pieces=pieces_of(tree.manifest))


def send(uploads: Uploads, tree: Tree) -> None:
    for _ in range(2):  # the manifest first
        for digest in uploads.missing(described(tree), after=0).pieces:
            with closing(uploads.receive(digest)) as writer:
                writer.write(tree.pieces[digest])
                writer.finish()


def commit(uploads: Uploads, tree: Tree, *, name: str | None = "digits") -> None:
    uploads.commit(NewAsset(manifest=described(tree), kind=AssetKind.DATASET, name=name, kept=name is not None))


def killed_at(step: int) -> None:
    """SIGKILL of this process at that call of those that change files."""
    count = itertools.count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and next(count) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def kill_while_committing(home: Path, step: int) -> bool:
    """Whether it was killed, and had not ended before."""

    def work() -> None:
        database, store = opened(home, StillClock())
        uploads = Uploads(store, database.assets, StillClock())
        send(uploads, TREE)
        killed_at(step)
        commit(uploads, TREE)
        database.close()

    child = Child(work, home.with_name("output"))
    assert child.wait(60)
    assert child.code in {0, -signal.SIGKILL}, home.with_name("output").read_text()
    return child.code != 0


def test_killed_at_any_step_of_a_commit_there_is_a_whole_asset_or_none_and_it_goes_on(tmp_path: Path) -> None:
    clock = StillClock()
    for step in itertools.count(1):
        home = tmp_path / f"home{step}"
        home.mkdir()
        was_killed = kill_while_committing(home, step)
        database, store = opened(home, clock)
        with closing(database):
            rows = database.assets
            assert list(missing_assets(store, rows)) == []
            assert list(damages(store, rows)) == []
            assert [str(v) for v in rows.versions()] == (["digits@1"] if rows.asset_ids() else [])
            collect(store, rows, now=clock.now(), uptime=lambda: 0.0, remove=True)  # it takes nothing that goes on
            uploads = Uploads(store, rows, clock)
            assert uploads.missing(described(TREE), after=0).pieces == ()
            commit(uploads, TREE)
            assert list(damages(store, rows)) == []
            assert list(store.staging.iterdir()) == []
            assert store.leases(store.lineage) == {}
        if not was_killed:
            assert step > 10
            return


def test_what_was_broken_off_is_collected_after_its_lease_and_nothing_is_left(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", StillClock()
    home.mkdir()
    assert kill_while_committing(home, 12)
    database, store = opened(home, clock)
    with closing(database):
        collect(store, database.assets, now=clock.now() + LEASE_S - 1, uptime=lambda: 0.0, remove=True)
        assert Uploads(store, database.assets, clock).missing(described(TREE), after=0).pieces == ()

        collect(store, database.assets, now=clock.now() + 2 * LEASE_S, uptime=lambda: 0.0, remove=True)
        collect(store, database.assets, now=clock.now() + 2 * LEASE_S, uptime=lambda: 0.0, remove=True)

    left = [path for path in (home / "assets").rglob("*") if path.is_file()]
    assert {path.relative_to(home / "assets").parts[0] for path in left} <= {"owners", "incoming"}
    assert [path for path in left if path.suffix != ".boot" and "owners" not in path.parts] == []


# ── collecting ──────────────────────────────────────────────────────────────────────────────────
@contextmanager
def a_service(folder: Path, name: str, clock: StillClock) -> Iterator[tuple[SqlStore, AssetStore]]:
    """With a home and a database of its own, on the asset store that all share."""
    home = folder / name
    home.mkdir(exist_ok=True)
    with closing(open_store(home / "tuner.db", clock)) as database:
        store = AssetStore(str(folder / "shared"), home=home, lineage=database.lineage)
        store.begin_staging()
        store.own([])
        yield database, store


def test_a_collector_leaves_what_another_service_has_and_takes_the_rest(tmp_path: Path) -> None:
    clock = StillClock()
    other = a_tree({"a": b"a", "c": b"c"})
    with a_service(tmp_path, "one", clock) as (one, store), a_service(tmp_path, "two", clock) as (two, second):
        for rows, its, tree in ((one.assets, store, TREE), (two.assets, second, other)):
            uploads = Uploads(its, rows, clock)
            send(uploads, tree)
            commit(uploads, tree)
        one.assets.remove(TREE.id, limit=1)

        found = collect(store, one.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)

        assert {f.what for f in found} == {"asset", "file"}
        assert list(damages(second, two.assets)) == []
        assert not store.has(TREE.id)
        two.assets.remove(other.id, limit=1)
        collect(second, two.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)
    assert not [path for path in (tmp_path / "shared/files").rglob("*") if path.is_file()]


def test_two_uploads_of_the_same_content_at_once_with_collectors_beside_them(tmp_path: Path) -> None:
    clock = StillClock()
    ended = threading.Event()
    wrong: list[BaseException] = []

    def collects(store: AssetStore, database: SqlStore) -> None:
        try:
            while not ended.is_set():
                collect(store, database.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)
        except BaseException as error:  # noqa: BLE001  told by the test itself
            wrong.append(error)

    def adds(store: AssetStore, database: SqlStore) -> None:
        uploads, added = Uploads(store, database.assets, clock), 0
        try:
            while added < 15:
                try:
                    send(uploads, TREE)
                    commit(uploads, TREE)
                except (UnavailableError, ConflictError):
                    continue
                assert list(damages(store, database.assets)) == []
                database.assets.remove(TREE.id, limit=1)
                store.unmark(store.lineage, TREE.id)
                added += 1
        except BaseException as error:  # noqa: BLE001  told by the test itself
            wrong.append(error)

    with (
        a_service(tmp_path, "one", clock) as one,
        a_service(tmp_path, "two", clock) as two,
        a_service(tmp_path, "three", clock) as (database, store),
    ):
        collector = threading.Thread(target=collects, args=(store, database))
        adders = [threading.Thread(target=adds, args=(s, d)) for d, s in (one, two)]
        for thread in (collector, *adders):
            thread.start()
        for thread in adders:
            thread.join()
        ended.set()
        collector.join()
    assert wrong == []


def test_what_an_upload_of_the_same_content_commits_meanwhile_need_not_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StillClock()
    with a_service(tmp_path, "one", clock) as (database, store):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)

        def looked_and_committed(*, now: float) -> bool:
            del now
            monkeypatch.undo()
            commit(uploads, TREE)
            return False

        monkeypatch.setattr(store, "is_collected_by_others", looked_and_committed)

        assert uploads.missing(described(TREE), after=0).pieces == ()
        assert list(damages(store, database.assets)) == []


def test_what_no_person_keeps_is_collected_after_an_hour_unless_something_names_it(tmp_path: Path) -> None:
    clock = StillClock()
    with a_service(tmp_path, "one", clock) as (database, store):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        commit(uploads, TREE, name=None)

        collect(store, database.assets, now=clock.now() + FRESH_S - 1, uptime=lambda: 0.0, remove=True)
        assert database.assets.asset_ids() == [TREE.id]
        listed = collect(store, database.assets, now=clock.now() + FRESH_S + 1, uptime=lambda: 0.0, remove=False)
        assert database.assets.asset_ids() == [TREE.id]
        collect(store, database.assets, now=clock.now() + FRESH_S + 1, uptime=lambda: 0.0, remove=True)

        assert {f.what for f in listed} == {"asset", "file"}
        assert database.assets.asset_ids() == []
        assert not store.has(TREE.id)


def test_a_home_whose_database_was_put_back_collects_what_only_its_former_one_had(tmp_path: Path) -> None:
    clock = StillClock()
    with a_service(tmp_path, "one", clock) as (database, store):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        commit(uploads, TREE)
    (tmp_path / "one/tuner.db").unlink()
    with a_service(tmp_path, "one", clock) as (database, store):
        collect(store, database.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)
        collect(store, database.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)

        assert not store.has(TREE.id)


@pytest.mark.parametrize("root", ["memory://assets-of-a-test", "file"])
def test_a_store_behind_a_url_is_the_same(tmp_path: Path, root: str) -> None:
    pytest.importorskip("fsspec", reason="comes with torch")
    clock = StillClock()
    root = f"file://{tmp_path}/store" if root == "file" else root
    with closing(open_store(tmp_path / "tuner.db", clock)) as database:
        store = AssetStore(root, home=tmp_path, lineage=database.lineage)
        store.begin_staging()
        store.own([])
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        commit(uploads, TREE)

        assert list(damages(store, database.assets)) == []
        assert store.read(TREE.id, offset=0, length=5) == TREE.manifest[:5]
        assert uploads.missing(described(TREE), after=0).pieces == ()
        database.assets.remove(TREE.id, limit=1)
        collect(store, database.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)
        assert FileStore(root).sizes(f"files/{TREE.id[:2]}") == {}
        assert list(store.staging.iterdir()) == []


# ── copies ──────────────────────────────────────────────────────────────────────────────────────
def test_the_database_copied_first_and_the_store_then_are_whole_together(tmp_path: Path) -> None:
    clock = StillClock()
    later = a_tree({"later": b"later"})
    (tmp_path / "one").mkdir()
    database, store = opened(tmp_path / "one", clock)
    with closing(database):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        commit(uploads, TREE)
        send(uploads, a_tree({"under": b"way"}))  # broken off
        with (
            closing(sqlite3.connect(tmp_path / "one/tuner.db")) as read,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            read.backup(copy)
        send(uploads, later)
        commit(uploads, later)
        shutil.copytree(tmp_path / "one/assets", tmp_path / "copy-assets", ignore=shutil.ignore_patterns("incoming"))

    with closing(open_store(tmp_path / "copy.db", clock)) as copied:
        restored = AssetStore(str(tmp_path / "copy-assets"), home=tmp_path / "elsewhere", lineage=copied.lineage)
        restored.begin_staging()
        restored.own(list(copied.assets.asset_ids()))

        assert copied.lineage != store.lineage
        assert list(missing_assets(restored, copied.assets)) == []
        assert list(damages(restored, copied.assets)) == []
        assert [str(version) for version in copied.assets.versions()] == ["digits@1"]
        collect(restored, copied.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)
        assert list(damages(restored, copied.assets)) == []


def test_a_database_without_its_store_says_what_is_missing(tmp_path: Path) -> None:
    clock = StillClock()
    (tmp_path / "one").mkdir()
    database, store = opened(tmp_path / "one", clock)
    with closing(database):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        commit(uploads, TREE)
        empty = AssetStore(str(tmp_path / "empty"), home=tmp_path, lineage=database.lineage)

        assert list(missing_assets(empty, database.assets)) == [TREE.id]
        with pytest.raises(StorageError, match="manifest of asset"):
            collect(empty, database.assets, now=clock.now(), uptime=lambda: 0.0, remove=True)


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────
def test_a_full_disk_keeps_what_was_sent_and_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StillClock()
    (tmp_path / "one").mkdir()
    database, store = opened(tmp_path / "one", clock)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with closing(database):
        uploads = Uploads(store, database.assets, clock)
        send(uploads, TREE)
        for place in ("trials.stores.write_atomically", "tuner_service.service.assets.asset_store.sync_filesystem"):
            with monkeypatch.context() as patches:
                patches.setattr(place, full)
                with pytest.raises(UnavailableError, match="full"):
                    commit(uploads, TREE)
            assert database.assets.asset_ids() == []
            assert not [path for path in store.staging.iterdir() if path.name.startswith("draft-")]
        assert uploads.missing(described(TREE), after=0).pieces == ()
        commit(uploads, TREE)
        assert list(damages(store, database.assets)) == []
