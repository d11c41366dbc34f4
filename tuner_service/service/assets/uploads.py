"""Adding assets: what is missing, pieces as they come, and the commit.

A client sends the pieces of the manifest, asks what is missing, sends that, and commits; whatever ends in between, the
next one goes on from what is there. Everything that comes lies in the staging folder until the commit: a piece under
its digest, once it is whole and verified. A client of the home's own user puts files there itself, verified by it.
Nothing in the staging folder is an asset, and nothing in the store is one before its row is written.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from trials.files import is_full_disk, write_all
from trials.stores import StoreError, sizes_in
from trials.wire.manifests import (
    MAX_MANIFEST_BYTES,
    PIECE_BYTES,
    AssetFile,
    ManifestError,
    count_of_pieces,
    is_piece_digest,
    read_manifest,
    read_rest,
)
from tuner_service.domain.assets import Asset, AssetKind, AssetVersion
from tuner_service.domain.errors import ConflictError, Fault, InputError, UnavailableError
from tuner_service.ports import AssetRows, Clock
from tuner_service.service.assets.asset_store import DRAFT, LEASE_S, AssetStore, free_bytes

MISSING_PAGE = 10_000  # pieces named in one answer
MISSING_NAMED = 5  # in an error
COPY_BYTES = 1 << 20
LOOKS = 5  # at what is staged, while others commit the same content
PLACES_LIMIT = 100  # manifests of which it is remembered how far they were gone through, the newest ones
ONE_BY_ONE = 2 * MISSING_PAGE  # files of a folder that are looked for; for more of them all that are there are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """``pieces`` in the order of the files. ``after``: the place of the file to go on behind, None where it is done.

    ``bytes`` is what the pieces have together.
    """

    asset_id: str
    pieces: tuple[str, ...]
    bytes: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAsset:
    """What is to be committed; ``manifest`` is described as a file."""

    manifest: AssetFile
    kind: AssetKind
    name: str | None
    kept: bool


def manifest_file(*, size: int, pieces: tuple[str, ...]) -> AssetFile:
    """InputError where it cannot be one."""
    if size > MAX_MANIFEST_BYTES:
        raise InputError([Fault(pointer="/manifest/size", message=f"should be at most {MAX_MANIFEST_BYTES}")])
    if len(pieces) != count_of_pieces(size) or not all(map(is_piece_digest, pieces)):
        wrong = f"should be the {count_of_pieces(size)} SHA-256 digests of its pieces of {PIECE_BYTES} bytes"
        raise InputError([Fault(pointer="/manifest/pieces", message=wrong)])
    return AssetFile(path="manifest", size=size, pieces=pieces)


class PieceWriter:
    """One piece on its way into the staging folder; it has its name there once it is whole and verified.

    A request that was broken off closes it while a thread may still write: the number of a closed descriptor may be
    that of another file by then, so one lock is around both.
    """

    def __init__(self, staging: Path, digest: str) -> None:
        self._target = staging / digest
        self._draft = staging / f"{DRAFT}{secrets.token_hex(8)}"
        self._hash = hashlib.sha256()
        self._size = 0
        self._writing = threading.Lock()
        self._is_closed = False
        self._descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > PIECE_BYTES:
            raise InputError([Fault(pointer="", message=f"a piece has at most {PIECE_BYTES} bytes")])
        self._hash.update(data)
        with self._writing:
            if self._is_closed:
                raise BrokenPipeError(f"piece {self._target.name} was broken off")
            write_all(self._descriptor, data)

    def finish(self) -> None:
        if self._hash.hexdigest() != self._target.name:
            message = f"the {self._size} bytes have the digest {self._hash.hexdigest()}, not {self._target.name}"
            raise InputError([Fault(pointer="", message=f"{message}: they were damaged on their way; send them again")])
        self._draft.replace(self._target)

    def close(self) -> None:
        """Leaves nothing of what was not finished."""
        with self._writing:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._descriptor)
        self._draft.unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class _Place:
    """How far a manifest was gone through: ``count`` files, up to that byte. ``file``: which one on the disk it is."""

    file: tuple[int, int, int] | None = None  # None: one of the store
    count: int = 0
    byte: int = 0


class Uploads:
    """Any thread; every call but ``commit_in_turn`` blocks. Commits are made one at a time."""

    def __init__(self, store: AssetStore, rows: AssetRows, clock: Clock) -> None:
        self._store, self._rows, self._clock = store, rows, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="committing")
        self._in_turn: dict[NewAsset, asyncio.Future[tuple[Asset, AssetVersion | None, bool]]] = {}
        self._committing = threading.Lock()
        self._leasing = threading.Lock()  # held while a lease is taken or given up: it has two files
        self._places: dict[str, _Place] = {}  # of manifests that were read through once, by their digests

    def has_piece(self, digest: str) -> bool:
        """Whether the staging folder has it, so that it need not be sent again."""
        return (self._store.staging / digest).exists()

    def receive(self, digest: str) -> PieceWriter:
        with in_words(self._store.staging):
            self._store.staging.mkdir(parents=True, exist_ok=True, mode=0o700)
            return PieceWriter(self._store.staging, digest)

    def missing(self, manifest: AssetFile, *, after: int) -> Missing:
        """What has to be sent, of the files after that place; from here on nothing that is there is collected."""
        with in_words(self._store.staging):
            for _ in range(LOOKS - 1):
                try:
                    return self._missing(manifest, after=after)
                except OSError as error:
                    if error.errno != errno.ENOENT:
                        raise
                    # The commit of an upload of the same content has just cleared it away: it is in the store now.
            return self._missing(manifest, after=after)

    def _missing(self, manifest: AssetFile, *, after: int) -> Missing:
        leased = self._leased(manifest, after=after)
        if leased is None:
            return Missing(asset_id=manifest.digest, pieces=manifest.pieces, bytes=manifest.size, after=after)
        pieces: dict[str, int] = {}
        known = _Known(self._store)
        place, files = leased
        for file in files:
            if place.count <= after or known.has(file):
                continue
            sent = {p: file.piece_size(i) for i, p in enumerate(file.pieces) if not known.has_piece(p)}
            pieces |= sent
            if len(pieces) >= MISSING_PAGE:
                after = place.count
                self._remember(manifest.digest, place)
                break
        else:
            after = 0
        self._require_room(sum(pieces.values()))
        missing_bytes = sum(pieces.values())
        return Missing(asset_id=manifest.digest, pieces=tuple(pieces), bytes=missing_bytes, after=after or None)

    def commit(self, new: NewAsset) -> tuple[Asset, AssetVersion | None, bool]:
        """The asset, its version, and whether anything is new; durable. ConflictError where bytes are missing."""
        manifest = new.manifest
        with in_words(self._store.staging), self._committing:
            leased = self._leased(manifest)
            if leased is None:
                raise _missing_error(manifest.digest, ["its manifest"], 1)
            count, size = self._take_in(manifest, leased[1])
            asset_id = manifest.digest
            # A mark that is there stays as it is: no listing may miss it while another one takes its place. It is
            # believed only where there is a row, which came after it was on the disk.
            if self._rows.asset(asset_id) is None or not self._store.is_marked(self._store.lineage, asset_id):
                self._store.mark(asset_id)
            at = self._clock.now()
            added = self._rows.add(
                Asset(id=asset_id, kind=new.kind, size=size, files=count, kept=new.kept, at=at), new.name
            )
            with self._leasing:
                self._store.release(self._store.lineage, asset_id)
            self._clear_staged(manifest)
            self._places.pop(asset_id, None)
        return added

    async def commit_in_turn(self, new: NewAsset) -> tuple[Asset, AssetVersion | None, bool]:
        """As ``commit``, for the loop: one that waits for others, or for a slow store, takes up no thread of readers.

        Who asks for the same once more meanwhile is given the same answer; who goes away takes nothing back.
        """
        waited_for = self._in_turn.get(new)
        if waited_for is None:
            waited_for = asyncio.get_running_loop().run_in_executor(self._thread, self.commit, new)
            self._in_turn[new] = waited_for
            waited_for.add_done_callback(lambda _: self._in_turn.pop(new))
        return await asyncio.shield(waited_for)

    def close(self) -> None:
        """The commit at hand is finished; those that wait for it are given up."""
        self._thread.shutdown(cancel_futures=True)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────
    def _leased(self, manifest: AssetFile, *, after: int = 0) -> tuple[_Place, Iterator[AssetFile]] | None:
        """The files that a manifest names, which are leased now; None where the manifest itself has to be sent.

        Some of the first ``after`` may be left out. The place moves on with them.
        """
        store, asset_id = self._store, manifest.digest
        store.settle_staging()
        store.staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged = self._whole(manifest)
        is_stored = _Known(store).has_stored(manifest)
        if staged is None and is_stored and self._rows.asset(asset_id) is not None:
            place = _Place()  # it is an asset, whose files nobody collects
            return place, _counted(store.manifest(asset_id), place)
        if staged is None and is_stored:
            staged = store.restage(asset_id)
        if staged is None:
            return None
        place = self._begun(asset_id, staged, after=after)
        with self._leasing:
            store.lease(asset_id, staged, until=self._clock.now() + LEASE_S)
        if store.is_collected_by_others(now=self._clock.now()):
            raise UnavailableError("another service that shares the asset store collects its garbage; try again soon")
        return place, _files_from(staged, place)

    def _begun(self, asset_id: str, staged: Path, *, after: int) -> _Place:
        """Where to go on in a manifest that was read through once; else its beginning, and it is."""
        found = staged.stat()
        file = found.st_ino, found.st_size, found.st_mtime_ns
        place = self._places.get(asset_id)
        if place is None or place.file != file:
            self._check(staged)
            self._remember(asset_id, _Place(file=file))
        elif place.count <= after:
            return replace(place)
        return _Place(file=file)

    def _remember(self, asset_id: str, place: _Place) -> None:
        if place.file is not None:
            self._places.pop(asset_id, None)
            self._places[asset_id] = replace(place)
        for oldest in list(self._places)[:-PLACES_LIMIT]:
            self._places.pop(oldest, None)

    def _check(self, staged: Path) -> None:
        try:
            for _ in _files_from(staged, _Place()):
                pass
        except ManifestError as error:
            staged.unlink()
            raise InputError([Fault(pointer="/manifest", message=str(error))]) from error

    def _take_in(self, manifest: AssetFile, files: Iterator[AssetFile]) -> tuple[int, int]:
        """How many files there are, and what they have together; all of them in the store."""
        known = _Known(self._store)
        staged: dict[str, Path] = {}
        missing: list[str] = []
        count = size = lacking = 0
        for file in files:
            count, size = count + 1, size + file.size
            digest = file.digest
            if digest in staged or known.has_stored(file):
                continue
            path = self._whole(file)
            if path is not None:
                staged[digest] = path
            elif lacking >= MISSING_NAMED or self._store.size(digest) != file.size:
                # It was not in the staging folder of another upload a moment ago, and is in the store now.
                lacking += 1
                missing += [file.path] if len(missing) < MISSING_NAMED else []
        if lacking:
            raise _missing_error(manifest.digest, missing, lacking)
        path = None if known.has_stored(manifest) else self._whole(manifest)
        if path is not None:
            staged[manifest.digest] = path
        if staged:
            self._store.take_in(list(staged.values()))
        return count, size

    def _whole(self, file: AssetFile) -> Path | None:
        """In the staging folder, put together of its pieces where they are there; None where one is missing."""
        staging, digest = self._store.staging, file.digest
        target = staging / digest
        if _has_size(target, file.size):
            return target
        parts = [staging / piece for piece in file.pieces]
        if len(parts) == 1 or not all(_has_size(part, file.piece_size(i)) for i, part in enumerate(parts)):
            return None
        draft = staging / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            with draft.open("xb") as writing:
                for part in parts:
                    with part.open("rb") as reading:
                        while os.copy_file_range(reading.fileno(), writing.fileno(), COPY_BYTES):
                            pass
                os.fchmod(writing.fileno(), 0o400)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return target

    def _clear_staged(self, manifest: AssetFile) -> None:
        """Pieces of large files, and whole files that the store had already."""
        staged = sizes_in(self._store.staging).keys()
        for file in chain([manifest], self._store.manifest(manifest.digest) if staged else ()):
            for name in staged & {*file.pieces, file.digest}:
                with suppress(FileNotFoundError):
                    (self._store.staging / name).unlink()

    def _require_room(self, needed: int) -> None:
        free = free_bytes(self._store.staging)
        if needed > free:
            raise UnavailableError(
                f"{needed} bytes have to be sent, and the disk of {self._store.staging} has room for {free}; make "
                "room, or name another asset_store"
            )


class _Known:
    """What the store and the staging folder have, each file looked at once.

    Of a store that is a folder, some are looked for one by one; for many, and behind a URL, all with the same beginning
    of a digest are listed.
    """

    def __init__(self, store: AssetStore) -> None:
        self._store = store
        self._left = 0 if store.folder is None else ONE_BY_ONE
        self._sizes: dict[str, dict[str, int]] = {}
        self._staged = _Staged(store.staging)

    def has(self, file: AssetFile) -> bool:
        return self.is_staged(file) or self.has_stored(file)

    def is_staged(self, file: AssetFile) -> bool:
        if self._staged.size(file.digest) == file.size:
            return True
        return all(self._staged.size(piece) == file.piece_size(i) for i, piece in enumerate(file.pieces))

    def has_piece(self, digest: str) -> bool:
        return self._staged.size(digest) is not None

    def has_stored(self, file: AssetFile) -> bool:
        digest = file.digest
        prefix = digest[:2]
        if prefix not in self._sizes:
            if self._left > 0:
                self._left -= 1
                return self._store.size(digest) == file.size
            self._sizes[prefix] = self._store.sizes(prefix)
        return self._sizes[prefix].get(digest) == file.size


class _Staged:
    """Of what is in the staging folder: some is looked for file by file, for many files all of it is listed, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int | None] = {}
        self._is_listed = False

    def size(self, name: str) -> int | None:
        if name not in self._sizes and not self._is_listed:
            if len(self._sizes) < ONE_BY_ONE:
                self._sizes[name] = _size_of(self._folder / name)
            else:
                self._sizes, self._is_listed = dict(sizes_in(self._folder)), True
        return self._sizes.get(name)


def _files_from(manifest: Path, place: _Place) -> Iterator[AssetFile]:
    with manifest.open("rb") as stream:
        stream.seek(place.byte)
        for file in read_rest(stream, count=place.count) if place.count else read_manifest(stream):
            place.count, place.byte = place.count + 1, stream.tell()
            yield file


def _counted(files: Iterator[AssetFile], place: _Place) -> Iterator[AssetFile]:
    for file in files:
        place.count += 1
        yield file


def _has_size(path: Path, size: int) -> bool:
    return _size_of(path) == size


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _missing_error(asset_id: str, named: list[str], count: int) -> ConflictError:
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return ConflictError(
        f"asset sha256:{asset_id} is not whole: {', '.join(named)}{more} missing; ask what is missing and send it",
        ("missing",),
    )


@contextmanager
def in_words(folder: Path) -> Iterator[None]:
    """What the disk or the store says becomes an error that names what to do."""
    try:
        yield
    except (StoreError, OSError) as error:
        if is_full_disk(error):
            raise UnavailableError(
                f"the disk of {folder} is full; make room and add the asset again: what was sent is kept"
            ) from error
        raise UnavailableError(f"the asset store cannot be used now: {error}") from error
