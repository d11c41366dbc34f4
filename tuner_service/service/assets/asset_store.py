"""Where the bytes of assets lie: whole files by their digest, each stored once, in a folder or behind a URL.

    files/ab/abcd…              a file, whole; what is written there is verified and on the disk before it has the name
    assets/LINEAGE/ID           empty: the database LINEAGE has the asset ID
    leases/LINEAGE/ID.manifest  of what is being uploaded; ID.until says up to when nothing of it is collected
    collecting/LINEAGE          the time up to which a collector of that database removes files
    owners/LINEAGE              which home has the database, and where that is

A mark is written before the lease of its asset is given up: who looks for leases first, and for marks then, sees one.
Rows of a database are the point of commit for its people. The marks stand in the store itself, because services with
databases of their own may share one: a collector sees what the others need. Whoever uploads takes a lease first and
looks for collectors then, a collector says that it collects and looks for leases then; so one of the two sees the
other. A collector goes on saying it, and ends by itself where it could not in time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from trials.files import create_once, write_atomically
from trials.stores import FileStore, StoreError, clear, is_url, sync_filesystem
from trials.wire.manifests import (
    MAX_MANIFEST_BYTES,
    AssetFile,
    find_file,
    is_file_digest,
    read_manifest,
    read_rest,
)
from tuner_service.config import Settings
from tuner_service.domain.assets import AssetId
from tuner_service.domain.errors import StorageError

FILES, ASSETS, LEASES, COLLECTING, OWNERS, INCOMING = "files", "assets", "leases", "collecting", "owners", "incoming"
HOME_ID = "asset-owner"  # the file in a home that holds its id
LEASE_S = 86_400.0  # from the last sign of the client; an upload that was broken off is continued within it
SMALL_BYTES = 4_096
DRAFT = "draft-"  # begins the name of what is not whole yet
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlace:
    """Behind ``count`` files of a manifest, which end at that byte; the default is its beginning."""

    count: int = 0
    byte: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPage:
    files: tuple[AssetFile, ...]
    following: ManifestPlace | None  # None: these were the last


class AssetStore:
    """Of one database, whose lineage names its marks. Any thread; every call blocks. StoreError where it fails.

    ``database``: where that is, a file or a URL; nothing of it is written down that could be read.
    """

    def __init__(self, root: str, *, home: Path, lineage: str, database: str = "") -> None:
        self._files = FileStore(root)
        self.home, self._database = home, database
        self.lineage = lineage
        self.staging = staging_of(root, home=home, lineage=lineage)
        self._settling, self._is_unsettled = threading.Lock(), False

    @classmethod
    def of(cls, settings: Settings, lineage: str) -> AssetStore:
        """That of the database of a service with these settings."""
        return cls(settings.asset_root, home=settings.home, lineage=lineage, database=settings.db)

    @property
    def root(self) -> str:
        return self._files.root

    @property
    def folder(self) -> Path | None:
        """Where the store is a folder of this machine."""
        return self._files.folder

    # ── files ───────────────────────────────────────────────────────────────────────────────────
    def path_of(self, digest: str) -> Path | None:
        """Of a file in a store that is a folder, to be read and never written; it may be missing."""
        return None if self.folder is None else self.folder / file_name(digest)

    def has(self, digest: str) -> bool:
        return self._files.size(file_name(digest)) is not None

    def size(self, digest: str) -> int | None:
        """Of one file, as it is now; None where there is no such file."""
        return self._files.size(file_name(digest))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Of all files whose digest begins with these two digits."""
        return self._files.sizes(f"{FILES}/{prefix}")

    def prefixes(self) -> list[str]:
        """Those with which the digests of files begin."""
        return self._files.folders(FILES)

    def read(self, digest: str, *, offset: int, length: int) -> bytes:
        """StoreError caused by a FileNotFoundError where the store has no such file."""
        return self._files.read(file_name(digest), offset=offset, length=length)

    def manifest(self, asset_id: AssetId) -> Iterator[AssetFile]:
        """The files of an asset, in their order. StorageError where the store has no manifest, or a damaged one."""
        with self._manifest(asset_id) as stream:
            yield from read_manifest(stream)

    def page(self, asset_id: AssetId, place: ManifestPlace, limit: int) -> ManifestPage | None:
        """Of the files of an asset, from a place on, as many as ``limit``; None for a place that no page has named.

        What lies before the place is not read. StorageError as above.
        """
        if place.byte > MAX_MANIFEST_BYTES:
            return None
        with self._manifest(asset_id) as stream:
            if place.byte > 0:
                stream.seek(place.byte - 1)
                if stream.read(1) != b"\n":
                    return None
            files = read_rest(stream, count=place.count) if place.byte > 0 else read_manifest(stream)
            found = tuple(islice(files, limit))
            following = ManifestPlace(count=place.count + len(found), byte=stream.tell())
            return ManifestPage(files=found, following=following if stream.read(1) else None)

    def find(self, asset_id: AssetId, path: str) -> AssetFile | None:
        """The file of an asset with that path. StorageError as above."""
        with self._manifest(asset_id) as stream:
            return find_file(stream, path)

    @contextmanager
    def _manifest(self, asset_id: AssetId) -> Iterator[BinaryIO]:
        try:
            with self._files.opened(file_name(asset_id)) as stream:
                yield stream
        except StoreError as error:
            raise StorageError(f"the manifest of asset {asset_id} cannot be read: {error}") from error
        except ValueError as error:
            raise StorageError(
                f"the manifest of asset {asset_id} is damaged: {error}; `tuner doctor` names all that is"
            ) from error

    def take_in(self, staged: list[Path]) -> None:
        """Give each of these files of the staging folder, named by their digests, its place. All is durable at the end.

        What is there already stays as it is.
        """
        if self.folder is None:
            for path in staged:
                self._files.put(path, file_name(path.name))
                path.unlink()
            return
        # Before a file has its name, its bytes are on the disk; and the names are before anything speaks of them.
        sync_filesystem(str(self.staging))
        for folder in {path.name[:2] for path in staged}:
            (self.folder / FILES / folder).mkdir(parents=True, exist_ok=True)
        for path in staged:
            path.replace(self.folder / file_name(path.name))
        sync_filesystem(str(self.folder))

    def remove_file(self, digest: str) -> None:
        self._files.remove(file_name(digest))

    def open(self, asset_ids: list[AssetId], *, wait_s: float) -> None:
        """At the start of a service: ``begin`` and ``own``, in a thread. A folder is waited for, so long at most.

        Whoever comes meanwhile waits for the first of them, and nobody for the other.
        """
        if self.folder is None:
            self.begin()  # in the home

        def work() -> None:
            if self.folder is not None:
                self.begin()
            try:
                self.own(asset_ids)
            except StoreError as error:
                logger.warning("asset_store_unusable", extra={"error": str(error)})

        opening = threading.Thread(target=work, name="asset-store", daemon=True)
        opening.start()
        if self.folder is not None:  # behind a URL, it may take long to be reached
            opening.join(wait_s)
            if opening.is_alive():
                logger.warning("asset_store_unusable", extra={"error": f"no answer of {self.root} for {wait_s:g} s"})

    def begin(self) -> None:
        """At the start of a service. Of a store that cannot be used then, the staging begins when something comes."""
        with self._settling:  # who comes while it hangs waits for it
            try:
                self.begin_staging()
            except OSError as error:
                logger.warning("asset_store_unusable", extra={"error": str(error)})

    def staging_status(self) -> os.stat_result | None:
        """Of the staging folder, by which a client knows that it sees the same one; None where there is none."""
        try:
            status = self.staging.stat()
        except OSError:
            return None
        return status if stat.S_ISDIR(status.st_mode) else None

    def settle_staging(self) -> None:
        """Before what is staged is believed: begun now where it could not be. OSError where it still cannot be."""
        with self._settling:
            if self._is_unsettled:
                self.begin_staging()

    def begin_staging(self) -> None:
        """At the start of a service, before anything comes.

        What was staged is not synced before it is taken in. So it is believed as long as the machine runs, whatever is
        killed, and after a start of the machine it is gone: its power may have been lost. Folders are of a service
        alone, and were removed by the one before unless it was killed.
        """
        self._is_unsettled = True
        mark, boot = self.staging.with_name(f"{self.staging.name}.boot"), _boot()
        try:
            staged_in = mark.read_text(encoding="utf-8")
        except OSError:
            staged_in = ""
        if staged_in != boot:
            clear(self.staging)
        self.staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self.staging.iterdir():
            if path.is_dir():
                clear(path)
        write_atomically(str(mark), boot.encode())
        self._is_unsettled = False

    def restage(self, asset_id: AssetId) -> Path:
        """A copy of a manifest of the store in the staging folder, under its digest."""
        draft, target = self.staging / f"{DRAFT}{secrets.token_hex(8)}", self.staging / asset_id
        try:
            with self._files.opened(file_name(asset_id)) as stream, draft.open("xb") as copy:
                shutil.copyfileobj(stream, copy)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return target

    # ── marks ───────────────────────────────────────────────────────────────────────────────────
    def own(self, asset_ids: list[AssetId]) -> None:
        """Say whose store it is, and which assets its database has: those without a mark get theirs."""
        self._files.write(f"{OWNERS}/{self.lineage}", _to_json(self._owner(_made_home_id(self.home))))
        marked = self.marked(self.lineage)
        for asset_id in asset_ids:
            if asset_id not in marked:
                self.mark(asset_id)

    def mark(self, asset_id: AssetId) -> None:
        self._files.write(f"{ASSETS}/{self.lineage}/{asset_id}", b"\n")

    def unmark(self, lineage: str, asset_id: AssetId) -> None:
        self._files.remove(f"{ASSETS}/{lineage}/{asset_id}")

    def marked(self, lineage: str) -> set[AssetId]:
        return {name for name in self._files.sizes(f"{ASSETS}/{lineage}") if is_file_digest(name)}

    def is_marked(self, lineage: str, asset_id: AssetId) -> bool:
        return self._files.size(f"{ASSETS}/{lineage}/{asset_id}") is not None

    def lineages(self) -> set[str]:
        """Of every database that has marks here. Leases first: one that is given up meanwhile left a mark."""
        return {*self._files.folders(LEASES), *self._files.folders(ASSETS), *self._files.sizes(OWNERS)}

    def former_lineages(self) -> set[str]:
        """Those of this same home and database, which was put back from a copy, so that nobody has the former one.

        None where that is not sure: machines made from one image may agree in all but the home's own id.
        """
        home_id = _home_id(self.home)
        if not home_id:
            return set()
        mine = self._owner(home_id)
        others = set(self._files.sizes(OWNERS)) - {self.lineage}
        return {lineage for lineage in others if self._small(f"{OWNERS}/{lineage}") == mine}

    def forget(self, lineage: str) -> None:
        """All marks of a database that is no more."""
        for folder in (ASSETS, LEASES, COLLECTING, OWNERS):
            self._files.remove(f"{folder}/{lineage}")
        if self.folder is not None:
            clear(self.folder / INCOMING / lineage)

    # ── leases ──────────────────────────────────────────────────────────────────────────────────
    def lease(self, asset_id: AssetId, manifest: Path, *, until: float) -> None:
        """Nothing that the manifest names is collected up to then; a lease that is there lasts longer."""
        name = f"{LEASES}/{self.lineage}/{asset_id}"
        if self._files.size(f"{name}.manifest") is None:
            self._files.put(manifest, f"{name}.manifest")
        self._files.write(f"{name}.until", _to_json({"until": until}))

    def release(self, lineage: str, asset_id: AssetId) -> None:
        name = f"{LEASES}/{lineage}/{asset_id}"
        self._files.remove(f"{name}.until")
        self._files.remove(f"{name}.manifest")

    def leases(self, lineage: str) -> dict[AssetId, float]:
        """By what is being uploaded, the time up to which it is leased."""
        found = {}
        for name in self._files.sizes(f"{LEASES}/{lineage}"):
            asset_id = name.removesuffix(".until").removesuffix(".manifest")
            if is_file_digest(asset_id):
                found[asset_id] = self._time(f"{LEASES}/{lineage}/{asset_id}.until", "until")
        return found

    def leased_files(self, lineage: str, asset_id: AssetId) -> Iterator[AssetFile]:
        """Nothing where the lease was given up meanwhile: then its asset has a mark, or nobody goes on with it."""
        try:
            with self._files.opened(f"{LEASES}/{lineage}/{asset_id}.manifest") as stream:
                yield from read_manifest(stream)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    # ── collecting ──────────────────────────────────────────────────────────────────────────────
    @contextmanager
    def collecting(self, *, until: float) -> Iterator[Callable[[float], None]]:
        """Uploads of other services wait in the block, up to that time where this process is killed.

        What is given puts it off to another time.
        """
        name = f"{COLLECTING}/{self.lineage}"

        def say(until: float) -> None:
            self._files.write(name, _to_json({"until": until}))

        say(until)
        try:
            yield say
        finally:
            self._files.remove(name)

    def is_collected_by_others(self, *, now: float) -> bool:
        # Some file systems leave a file out of a listing during which it is replaced, and a collector replaces its mark
        # once a minute: the second listing has it.
        others = {*self._files.sizes(COLLECTING), *self._files.sizes(COLLECTING)} - {self.lineage}
        return any(self._time(f"{COLLECTING}/{lineage}", "until") > now for lineage in others)

    def _owner(self, home_id: str) -> dict[str, object]:
        database = hashlib.sha256(self._database.encode()).hexdigest()[:32]
        return {"home": str(self.home), "home_id": home_id, "machine": _machine(), "database": database}

    # ── helpers ─────────────────────────────────────────────────────────────────────────────────
    def _time(self, name: str, field: str) -> float:
        found = self._small(name).get(field)
        return float(found) if isinstance(found, int | float) else 0.0

    def _small(self, name: str) -> dict[str, object]:
        """Empty where there is none or it makes no sense. What cannot be read now is an error, and no answer."""
        try:
            found = json.loads(self._files.read(name, length=SMALL_BYTES))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def file_name(digest: str) -> str:
    return f"{FILES}/{digest[:2]}/{digest}"


def _to_json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()


def _home_id(home: Path) -> str:
    """ "" where it has none yet."""
    try:
        return (home / HOME_ID).read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        return ""


def _made_home_id(home: Path) -> str:
    """Made up once; "" where it cannot be written down."""
    try:
        create_once(str(home / HOME_ID), secrets.token_hex(16).encode(), durable=True)
    except OSError:
        return ""
    return _home_id(home)


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def free_bytes(folder: Path) -> int:
    """For this process, on the file system of ``folder``."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def staging_of(root: str, *, home: Path, lineage: str) -> Path:
    """Beside the files where they are in a folder, so that a file gets its place there by a new name."""
    within = home / "assets" if is_url(root) else Path(root)
    return within / INCOMING / lineage
