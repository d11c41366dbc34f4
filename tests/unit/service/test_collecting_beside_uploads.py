"""A collector and an upload of two services that share an asset store, each broken off by the other at every step.

One act goes some steps, the other one some, then each to its end. A step is one look at the store or one change of it.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from tests.asset_trees import Tree, a_tree
from trials.stores import StoreError
from trials.wire.manifests import AssetFile, pieces_of
from tuner_service.domain.assets import Asset, AssetId, AssetKind
from tuner_service.domain.errors import ConflictError, StorageError, UnavailableError
from tuner_service.service.assets.asset_store import HOME_ID, LEASE_S, AssetStore, file_name
from tuner_service.service.assets.collecting import COLLECTING_S, OWN_S, SAID_AGAIN_S, collect, damages
from tuner_service.service.assets.uploads import NewAsset, Uploads

NOW = 1_750_000_000.0
TREE = a_tree({"a": b"a"})
UPLOADER, COLLECTOR = "uploader", "collector"


class Turns:
    """Of two acts, which run one at a time: ``steps`` of the first, then of the second, then each to its end."""

    def __init__(self, first: str, second: str, steps: tuple[int, int]) -> None:
        self._other = {first: second, second: first}
        self._left: dict[str, float] = {first: steps[0], second: steps[1]}
        self._may = {first: threading.Event(), second: threading.Event()}
        self._first, self._ended = first, set[str]()
        self.taken = dict.fromkeys(self._left, 0)

    def step(self, who: str) -> None:
        self.taken[who] += 1
        if self._left[who] <= 0 and self._other[who] not in self._ended:
            self._left[who] = float("inf")
            self._may[who].clear()
            self._may[self._other[who]].set()
            self._may[who].wait()
        self._left[who] -= 1

    def run(self, acts: dict[str, Callable[[], None]]) -> list[BaseException]:
        """What the acts raised."""
        raised: list[BaseException] = []

        def act(who: str) -> None:
            self._may[who].wait()
            try:
                acts[who]()
            except BaseException as error:  # noqa: BLE001  told by the test itself
                raised.append(error)
            self._ended.add(who)
            self._may[self._other[who]].set()

        threads = [threading.Thread(target=act, args=(who,)) for who in acts]
        for thread in threads:
            thread.start()
        self._may[self._first].set()
        for thread in threads:
            thread.join()
        return raised


class Files:
    """A FileStore in memory that is shared; each call is one step."""

    folder = None
    root = "memory"

    def __init__(self, held: dict[str, bytes], step: Callable[[], None]) -> None:
        self.held, self._step = held, step

    def put(self, source: Path, name: str) -> None:
        self._step()
        self.held[name] = source.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        self._step()
        self.held[name] = data

    def read(self, name: str, *, offset: int = 0, length: int) -> bytes:
        self._step()
        return self._found(name)[offset : offset + length]

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        self._step()
        yield io.BytesIO(self._found(name))

    def _found(self, name: str) -> bytes:
        if name not in self.held:
            raise StoreError(f"store: {name}") from FileNotFoundError(name)
        return self.held[name]

    def size(self, name: str) -> int | None:
        self._step()
        return len(self.held[name]) if name in self.held else None

    def _below(self, folder: str) -> list[tuple[str, str]]:
        self._step()
        found = [(*name.removeprefix(f"{folder}/").partition("/"), name) for name in self.held]
        return [(first, rest) for first, _, rest, name in found if name.startswith(f"{folder}/")]

    def sizes(self, folder: str) -> dict[str, int]:
        return {name: len(self.held[f"{folder}/{name}"]) for name, rest in self._below(folder) if not rest}

    def folders(self, folder: str) -> list[str]:
        return sorted({name for name, rest in self._below(folder) if rest})

    def remove(self, name: str) -> None:
        self._step()
        for found in [each for each in self.held if each == name or each.startswith(f"{name}/")]:
            del self.held[found]


class Rows:
    """Of one database; what these acts ask of AssetRows."""

    def __init__(self) -> None:
        self.assets: dict[AssetId, Asset] = {}
        self.is_lost = False

    def asset(self, asset_id: AssetId) -> Asset | None:
        return self.assets.get(asset_id)

    def asset_ids(self) -> Sequence[AssetId]:
        return sorted(self.assets)

    def named_by_experiments(self) -> dict[AssetId, str]:
        return {}

    def unneeded(self, *, before: float) -> Sequence[Asset]:
        return [asset for asset in self.assets.values() if not asset.kept and asset.at < before]

    def require_own(self) -> None:
        if self.is_lost:
            raise StorageError("another service has the database")

    def remove_unneeded(self, asset_ids: Sequence[AssetId], *, before: float) -> None:
        for asset in self.unneeded(before=before):
            if asset.id in asset_ids:
                del self.assets[asset.id]

    def add(self, asset: Asset, name: str | None) -> tuple[Asset, None, bool]:
        assert name is None
        return self.assets.setdefault(asset.id, asset), None, True


class Clock:
    def now(self) -> float:
        return NOW


class Service:
    """With a database of its own."""

    def __init__(
        self, folder: Path, name: str, held: dict[str, bytes], step: Callable[[], None] = lambda: None
    ) -> None:
        rows, files = cast("Any", Rows()), cast("Any", Files(held, step))
        self.rows = rows
        self.store: Any = AssetStore(f"memory://{name}", home=folder / name, lineage=name)
        self.store._files = files
        self.store.begin_staging()
        self.uploads = Uploads(self.store, rows, Clock())

    def send(self, tree: Tree) -> None:
        for _ in range(2):  # the manifest first
            for digest in self.uploads.missing(described(tree), after=0).pieces:
                with closing(self.uploads.receive(digest)) as writer:
                    writer.write(tree.pieces[digest])
                    writer.finish()

    def add(self, tree: Tree) -> None:
        self.send(tree)
        self.commit(tree)

    def commit(self, tree: Tree) -> None:
        self.uploads.commit(NewAsset(manifest=described(tree), kind=AssetKind.DATASET, name=None, kept=True))

    def collect(self, *, uptime: Callable[[], float] = lambda: 0.0) -> list[str]:
        return [f.where for f in collect(self.store, self.rows, now=NOW, uptime=uptime, remove=True)]

    def damages(self) -> list[str]:
        return [damage.text for damage in damages(self.store, self.rows)]


def described(tree: Tree) -> AssetFile:
    return AssetFile(path="manifest", size=len(tree.manifest), pieces=pieces_of(tree.manifest))


def garbage(held: dict[str, bytes]) -> None:
    """All files of the asset, which nothing has."""
    held.update({file_name(digest): data for digest, data in TREE.pieces.items()})


def schedules(tmp_path: Path, first: str, steps: tuple[int, int], prepare: str) -> tuple[Turns, list[str]]:
    """The turns that were taken, and what is wrong after them."""
    held: dict[str, bytes] = {}
    turns = Turns(first, COLLECTOR if first == UPLOADER else UPLOADER, steps)
    is_on = [False]

    def steps_of(who: str) -> Callable[[], None]:
        return lambda: turns.step(who) if is_on[0] else None

    uploader = Service(tmp_path, UPLOADER, held, steps_of(UPLOADER))
    collector = Service(tmp_path, COLLECTOR, held, steps_of(COLLECTOR))
    if prepare == "garbage":
        garbage(held)
    elif prepare == "sent":
        uploader.send(TREE)
    else:
        uploader.add(TREE)
    is_on[0] = True
    raised = turns.run({UPLOADER: lambda: uploader.commit(TREE), COLLECTOR: lambda: (collector.collect(), None)[1]})
    is_on[0] = False
    # An upload may be told to wait for the collector, or to send again what that has taken.
    wrong = [repr(error) for error in raised if not isinstance(error, UnavailableError | ConflictError)]
    if raised:
        uploader.add(TREE)
    return turns, [*wrong, *uploader.damages(), *collector.damages()]


@pytest.mark.parametrize(
    ("first", "prepare"),
    [(UPLOADER, "sent"), (UPLOADER, "garbage"), (UPLOADER, "an asset"), (COLLECTOR, "sent"), (COLLECTOR, "garbage")],
)
def test_whatever_comes_between_no_asset_is_damaged_and_no_collector_fails(
    tmp_path: Path, first: str, prepare: str
) -> None:
    second = COLLECTOR if first == UPLOADER else UPLOADER
    wrong = {}
    for begun in itertools.count():
        for between in itertools.count():
            folder = tmp_path / f"{begun}-{between}"
            turns, found = schedules(folder, first, (begun, between), prepare)
            if found:
                wrong[begun, between] = found
            if turns.taken[second] <= between:
                break  # the second one came to its end
        if turns.taken[first] <= begun:
            break
    assert wrong == {}
    assert begun > 5


def test_a_lease_is_taken_and_given_up_by_one_at_a_time(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    service = Service(tmp_path, "one", held)
    locked: list[bool] = []
    remove = service.store._files.remove

    def watched(name: str) -> None:
        locked.append(service.uploads._leasing.locked())
        remove(name)

    service.store._files.remove = watched
    service.add(TREE)

    assert locked == [True, True]
    assert not [name for name in held if name.startswith("leases/")]


def test_half_a_lease_hinders_no_collector(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    one, two = Service(tmp_path, "one", held), Service(tmp_path, "two", held)
    one.send(TREE)
    del held[f"leases/one/{TREE.id}.manifest"]

    assert two.collect() == []
    assert one.store.leases("one") == {TREE.id: NOW + LEASE_S}


def test_a_mark_that_goes_meanwhile_hinders_no_collector_and_one_that_stays_does(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    one, two = Service(tmp_path, "one", held), Service(tmp_path, "two", held)
    one.add(TREE)
    del held[file_name(TREE.id)]  # another collector has taken it
    opened = two.store._files.opened

    def unmarked(name: str) -> Any:
        one.store.unmark("one", TREE.id)
        return opened(name)

    with pytest.raises(StorageError, match="manifest of asset"):
        two.collect()
    two.store._files.opened = unmarked

    assert len(two.collect()) == len(TREE.files)


# ── former databases ────────────────────────────────────────────────────────────────────────────
def a_store(home: Path, lineage: str, held: dict[str, bytes], *, database: str = "tuner.db") -> AssetStore:
    home.mkdir(exist_ok=True)
    store = AssetStore("memory://shared", home=home, lineage=lineage, database=database)
    store._files = cast("Any", Files(held, lambda: None))
    return store


def test_only_the_same_home_with_the_same_database_has_former_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[str, bytes] = {}
    home, its_id = tmp_path / "home", tmp_path / "home" / HOME_ID
    a_store(home, "before", held).own([])
    a_store(home, "elsewhere", held, database="postgresql://me:secret@server/tuner").own([])
    now = a_store(home, "now", held)
    now.own([])
    assert now.former_lineages() == {"before"}
    assert not [name for name, data in held.items() if b"secret" in data]

    first = its_id.read_text()
    its_id.unlink()
    assert now.former_lineages() == set(), "a home that was made anew at the same place, of a like machine"
    a_store(home, "now", held).own([])
    assert its_id.read_text() != first
    assert now.former_lineages() == set()

    its_id.write_text(first)
    monkeypatch.setattr("tuner_service.service.assets.asset_store._machine", lambda: "another")
    assert now.former_lineages() == set(), "a copy of the home on another machine"


def test_a_home_that_cannot_be_written_into_has_no_former_databases(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    for lineage in ("before", "now"):
        store = a_store(tmp_path / "home", lineage, held)
        (tmp_path / "home" / HOME_ID).mkdir(exist_ok=True)
        store.own([])

    assert store.former_lineages() == set()


# ── time ────────────────────────────────────────────────────────────────────────────────────────
def test_a_collector_that_takes_long_goes_on_saying_that_it_collects(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    garbage(held)
    one, two = Service(tmp_path, "one", held), Service(tmp_path, "two", held)
    at = [0.0]
    waited: list[bool] = []
    remove = one.store._files.remove

    def slow(name: str) -> None:
        at[0] += COLLECTING_S / 2 - 1
        remove(name)
        waited.append(name.startswith("collecting/") or two.store.is_collected_by_others(now=NOW + at[0]))

    one.store._files.remove = slow
    one.collect(uptime=lambda: at[0])

    assert at[0] > COLLECTING_S
    assert all(waited)
    assert not [name for name in held if name.startswith(("files/", "collecting/"))]


def test_a_collector_whose_database_another_service_has_taken_over_removes_nothing_more(tmp_path: Path) -> None:
    """That one knows of no collector of its own database, and gives names to what was unneeded before."""
    held: dict[str, bytes] = {}
    garbage(held)
    service, at, removed = Service(tmp_path, "one", held), [0.0], list[str]()
    remove = service.store._files.remove

    def taken_over(name: str) -> None:
        removed.append(name)
        remove(name)
        at[0] += OWN_S + 0.1
        service.rows.is_lost = True

    service.store._files.remove = taken_over
    with pytest.raises(StorageError, match="another service has the database"):
        service.collect(uptime=lambda: at[0])

    assert [name for name in removed if name.startswith("files/")] == removed[:1]


def test_a_collector_that_was_kept_from_it_for_too_long_removes_nothing_more(tmp_path: Path) -> None:
    held: dict[str, bytes] = {}
    garbage(held)
    service = Service(tmp_path, "one", held)
    before = dict(held)
    times = iter([0.0, SAID_AGAIN_S + 1])

    with pytest.raises(StorageError, match=r"took 1939 s.*run `tuner gc` again"):
        service.collect(uptime=lambda: next(times, COLLECTING_S / 2 + 200))

    assert held == before
