"""What nothing needs any more of an asset store, and what is damaged in it.

Nobody adds to the store through this database meanwhile: it is held, and looked at again and again where a server has
it, which may give it to another service. Services with databases of their own may; their marks and leases are looked at
after the store was marked as being collected, and their uploads wait so long. What they gave up meanwhile is passed
over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trials.stores import StoreError, clear, sizes_in
from trials.wire.manifests import PIECE_BYTES, AssetFile, ManifestError, is_file_digest
from tuner_service.domain.assets import AssetId
from tuner_service.domain.errors import StorageError
from tuner_service.ports import AssetRows
from tuner_service.service.assets.asset_store import FILES, AssetStore

FRESH_S = 3_600.0  # an asset that nothing names yet may be on its way into an experiment
COLLECTING_S = 3_600.0  # uploads of other services wait no longer for a collector that was killed
SAID_AGAIN_S = 60.0  # by one that goes on, after this time
OWN_S = (
    1.0  # before it is asked again whether the database is still this process's: sooner than another one may have it
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """``remove`` is safe to repeat."""

    what: str
    where: str
    size: int
    why: str
    remove: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """``text`` names the file, what is wrong, and which asset has it."""

    text: str


class _Turn:
    """Of a collector: others wait for it, and it goes on only while they surely do."""

    def __init__(self, rows: AssetRows, say: Callable[[float], None], now: float, uptime: Callable[[], float]) -> None:
        self._rows, self._say, self._now, self._uptime = rows, say, now, uptime
        self._began = self._said = self._owned = uptime()

    def go_on(self) -> None:
        """StorageError where it was kept from here for so long that others may soon wait no more, and where another
        service has the database by now, which does not wait."""
        at = self._uptime()
        if at - self._said > COLLECTING_S / 2:
            raise StorageError(
                f"one step of it took {at - self._said:.0f} s, and uploads of other services wait no longer than "
                f"{COLLECTING_S:.0f} s; run `tuner gc` again"
            )
        if at - self._owned > OWN_S:
            self._rows.require_own()
            self._owned = at
        if at - self._said > SAID_AGAIN_S:
            self._say(self._now + (at - self._began) + COLLECTING_S)
            self._said = at


def collect(
    store: AssetStore, rows: AssetRows, *, now: float, uptime: Callable[[], float], remove: bool
) -> list[Unneeded]:
    """What nothing needs; gone when this returns, with ``remove``. StoreError, StorageError: no more was removed.

    ``uptime``: how long the machine has run, that it slept included.
    """
    if not remove:
        return list(_unneeded(store, rows, now, lambda: None))
    with store.collecting(until=now + COLLECTING_S) as say:
        turn = _Turn(rows, say, now, uptime)
        found = list(_unneeded(store, rows, now, turn.go_on))
        turn.go_on()
        rows.remove_unneeded([asset.id for asset in rows.unneeded(before=now - FRESH_S)], before=now - FRESH_S)
        for unneeded in found:
            turn.go_on()
            unneeded.remove()
    return found


def _unneeded(store: AssetStore, rows: AssetRows, now: float, go_on: Callable[[], None]) -> Iterator[Unneeded]:
    former = store.former_lineages()
    for lineage in sorted(former):
        yield Unneeded(
            what="marks", where=f"{store.root} of {lineage}", size=0, why="the home has another database now",
            remove=lambda lineage=lineage: store.forget(lineage),  # type: ignore[misc]  # bound now
        )  # fmt: skip
    going = {asset.id for asset in rows.unneeded(before=now - FRESH_S)}
    named = {asset_id for asset_id in rows.named_by_experiments() if store.has(asset_id)}
    mine = (set(rows.asset_ids()) - going) | named
    for asset_id in sorted(store.marked(store.lineage) - mine):
        yield Unneeded(
            what="asset", where=f"sha256:{asset_id}", size=0, why="no person, name or experiment keeps it",
            remove=lambda asset_id=asset_id: store.unmark(store.lineage, asset_id),  # type: ignore[misc]  # bound now
        )  # fmt: skip
    lineages = {*store.lineages(), store.lineage} - former
    # Leases before marks: an upload that ends in between has its mark by then.
    leased, staged, leases = _leased(store, lineages, now, go_on)
    yield from leases
    needed = leased | _marked(store, lineages, mine, go_on)
    for prefix in store.prefixes():
        go_on()
        for digest, size in sorted(store.sizes(prefix).items()):
            if digest not in needed:
                yield Unneeded(
                    what="file", where=f"{store.root}/{FILES}/{prefix}/{digest}", size=size, why="no asset has it",
                    remove=lambda digest=digest: store.remove_file(digest),  # type: ignore[misc]  # bound now
                )  # fmt: skip
    yield from _staged(store.staging, staged)


def _leased(
    store: AssetStore, lineages: set[str], now: float, go_on: Callable[[], None]
) -> tuple[set[str], set[str], list[Unneeded]]:
    """Digests that uploads have, here or elsewhere; those of uploads of this database; uploads to forget."""
    needed: set[str] = set()
    staged: set[str] = set()
    ended: list[Unneeded] = []
    for lineage in lineages:
        for asset_id, until in store.leases(lineage).items():
            go_on()
            if until > now:
                names = _names(store.leased_files(lineage, asset_id))
                needed |= names | {asset_id}
                staged |= names | {asset_id} if lineage == store.lineage else set()
            elif lineage == store.lineage:
                ended.append(_lease(store, asset_id))
    return needed, staged, ended


def _marked(store: AssetStore, lineages: set[str], mine: set[AssetId], go_on: Callable[[], None]) -> set[str]:
    """Digests that assets have, here or elsewhere."""
    needed: set[str] = set()
    for lineage in lineages:
        for asset_id in mine if lineage == store.lineage else store.marked(lineage):
            go_on()
            needed.add(asset_id)
            try:
                needed.update(file.digest for file in store.manifest(asset_id))
            except StorageError:
                if lineage == store.lineage or store.is_marked(lineage, asset_id):
                    raise
    return needed


def _lease(store: AssetStore, asset_id: AssetId) -> Unneeded:
    return Unneeded(
        what="upload",
        where=f"sha256:{asset_id}",
        size=0,
        why="it was broken off more than a day ago",
        remove=lambda: store.release(store.lineage, asset_id),
    )


def _names(files: Iterator[AssetFile]) -> set[str]:
    """Digests of the files and of their pieces."""
    try:
        return {name for file in files for name in (file.digest, *file.pieces)}
    except ManifestError as error:
        raise StorageError(f"a lease of the asset store is damaged: {error}; remove it, or wait for a day") from error


def _staged(folder: Path, leased: set[str]) -> Iterator[Unneeded]:
    """What came for an upload that nobody goes on with, and what was cut off; uploads end meanwhile."""
    for name, size in sorted(sizes_in(folder).items()):
        if name not in leased:
            path = folder / name
            yield Unneeded(
                what="upload", where=str(path), size=size, why="no upload goes on with it",
                remove=lambda path=path: clear(path),  # type: ignore[misc]  # bound now
            )  # fmt: skip


# ── damage ──────────────────────────────────────────────────────────────────────────────────────
def missing_assets(store: AssetStore, rows: AssetRows, wanted: Iterable[AssetId] | None = None) -> Iterator[AssetId]:
    """Of those wanted, or that experiments name or the database has: what the store has not, in their order.

    An asset counts as there where its manifest and every file that it names are; no file is read.
    """
    if wanted is None:
        wanted = {*rows.asset_ids(), *rows.named_by_experiments()}
    sizes: dict[str, dict[str, int]] = {}

    def has(file: AssetFile) -> bool:
        prefix = file.digest[:2]
        if prefix not in sizes:
            sizes[prefix] = store.sizes(prefix)
        return sizes[prefix].get(file.digest) == file.size

    for asset_id in sorted(wanted):
        if not (store.has(asset_id) and all(has(file) for file in store.manifest(asset_id))):
            yield asset_id


def damages(store: AssetStore, rows: AssetRows) -> Iterator[Damage]:
    """Every file of every asset is read; one that several assets have, once."""
    looked_at: set[str] = set()
    for asset_id in sorted({*rows.asset_ids(), *rows.named_by_experiments()}):
        try:
            files = list(store.manifest(asset_id))
        except StorageError as error:
            yield Damage(text=str(error))
            continue
        for file in files:
            if file.digest not in looked_at and is_file_digest(file.digest):
                looked_at.add(file.digest)
                problem = _problem_of(store, file)
                if problem is not None:
                    yield Damage(text=f"{file.path} of asset {asset_id[:16]} ({file.digest}) {problem}")


def _problem_of(store: AssetStore, file: AssetFile) -> str | None:
    with suppress(StoreError):
        for index, piece in enumerate(file.pieces):
            data = store.read(file.digest, offset=index * PIECE_BYTES, length=max(1, file.piece_size(index)))
            if hashlib.sha256(data).hexdigest() != piece:
                return "is damaged: its digest differs; remove it from the store and add the asset again"
        return None
    return "is missing or cannot be read; add the asset again, which mends it"
