"""Reading files for an asset: hashed on all cores, and where the store is at hand, copied by the same reading."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from trials.files import write_all
from trials.stores import clone, start_writeback
from trials.wire.manifests import PIECE_BYTES, count_of_pieces, digest_of_pieces
from tuner_service.assets.sources import AssetSourceError, Fingerprint, SourceFile

BLOCK_BYTES = 256 << 10  # read at once: what was hashed is still in the cache of its core when it is written
FILES_AT_ONCE = 32  # small ones, by one thread in a row
TASKS_WAITING = 4  # for each thread, so that what was found is handed on soon
Progress = Callable[[int], None]  # told how many bytes more were read
Hashed = tuple[SourceFile, tuple[str, ...]]
_of_thread = threading.local()


class SourceChangedError(AssetSourceError):
    """A file was written to while it was read."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} changed while it was read; add it again when nothing writes to it")
        self.location = location


@dataclass(frozen=True, kw_only=True)
class Staging:
    """The folders of the service's store, where they are of this machine and user."""

    store: Path
    folder: Path
    no_clones: threading.Event = field(default_factory=threading.Event)  # set once blocks could not be shared
    # Whether the file read last was in the store: the next one likely is, too, and is hashed before it is written.
    last_was_known: threading.Event = field(default_factory=threading.Event)

    def has(self, digest: str, size: int) -> bool:
        return _size(f"{self.store}/files/{digest[:2]}/{digest}") == size or _size(f"{self.folder}/{digest}") == size

    @contextmanager
    def draft(self) -> Iterator[tuple[int, Callable[[str], None]]]:
        """A new file to write to, and what gives it its name once it is whole; without that it is gone."""
        path = self.folder / f"draft-{secrets.token_hex(8)}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            yield descriptor, lambda digest: os.replace(path, self.folder / digest)  # noqa: PTH105
        finally:
            os.close(descriptor)
            with suppress(FileNotFoundError):
                path.unlink()


def hash_files(files: Sequence[SourceFile], *, staging: Staging | None, progress: Progress) -> Iterator[list[Hashed]]:
    """The digests of each file's pieces, some files at a time, in no order; in ``staging``, if given, lies each file.

    AssetSourceError for the first that cannot be read, or that changes meanwhile.
    """
    threads = os.cpu_count() or 1
    jobs = _jobs(files)
    with ThreadPoolExecutor(threads, thread_name_prefix="hash") as pool:
        waiting: set[Future[list[Hashed]]] = set()
        try:
            for job in jobs:
                waiting.add(pool.submit(_run, job, staging, progress))
                if len(waiting) >= threads * TASKS_WAITING:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield [entry for future in done for entry in future.result()]
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()


def _jobs(files: Iterable[SourceFile]) -> Iterator[list[SourceFile]]:
    """A large file alone, small ones together."""
    small: list[SourceFile] = []
    size = 0
    for file in files:
        if file.size > PIECE_BYTES:
            yield [file]
            continue
        small.append(file)
        size += file.size
        if len(small) == FILES_AT_ONCE or size >= PIECE_BYTES:
            yield small
            small, size = [], 0
    if small:
        yield small


def _run(files: list[SourceFile], staging: Staging | None, progress: Progress) -> list[Hashed]:
    return [(file, hash_file(file, staging=staging, progress=progress)) for file in files]


def hash_file(file: SourceFile, *, staging: Staging | None, progress: Progress) -> tuple[str, ...]:
    """Likewise, of one."""
    try:
        with _opened(file) as descriptor:
            if staging is None:
                return _pieces(file, descriptor, None, progress)
            return _staged(file, descriptor, staging, progress)
    except FileNotFoundError as error:
        raise SourceChangedError(file.location) from error
    except AssetSourceError:
        raise
    except OSError as error:
        place = file.location if staging is None else f"{file.location} (or the store in {staging.folder})"
        raise AssetSourceError(
            f"{place}: {error.strerror}; add it again once that is mended: what is done is kept"
        ) from error


def read_piece(file: SourceFile, index: int) -> bytes:
    """To be sent."""
    try:
        with _opened(file) as descriptor:
            return _pread(descriptor, file, offset=index * PIECE_BYTES, length=PIECE_BYTES)
    except FileNotFoundError as error:
        raise SourceChangedError(file.location) from error
    except OSError as error:
        raise AssetSourceError(f"{file.location} cannot be read: {error.strerror}") from error


def _staged(file: SourceFile, descriptor: int, staging: Staging, progress: Progress) -> tuple[str, ...]:
    """The digests of a file that lies in the staging folder now, or is in the store."""
    if staging.last_was_known.is_set():
        pieces = _pieces(file, descriptor, None, progress)
        if staging.has(digest_of_pieces(pieces), file.size):
            return pieces
        staging.last_was_known.clear()
        progress = _nothing_more
    with staging.draft() as (writing, name):
        shared = file.size > PIECE_BYTES and not staging.no_clones.is_set() and clone(descriptor, writing)
        if not shared and file.size > PIECE_BYTES:
            staging.no_clones.set()
        # What is hashed is what the store has: of a clone the clone, else the bytes that are written.
        pieces = _pieces(file, writing if shared else descriptor, None if shared else writing, progress)
        _require_same(file, descriptor)
        digest = digest_of_pieces(pieces)
        if staging.has(digest, file.size):
            staging.last_was_known.set()
        else:
            start_writeback(writing)
            name(digest)
    return pieces


def _nothing_more(_: int) -> None:
    """What is read a second time was told the first time."""


def _pieces(file: SourceFile, reading: int, writing: int | None, progress: Progress) -> tuple[str, ...]:
    found, at, block = [], 0, _block()
    for _ in range(count_of_pieces(file.size)):
        digest, end = hashlib.sha256(), min(at + PIECE_BYTES, file.size)
        while at < end:
            size = os.preadv(reading, [block[: end - at]], at)
            if not size:
                raise SourceChangedError(file.location)
            digest.update(block[:size])
            if writing is not None:
                write_all(writing, block[:size])
            at += size
            progress(size)
        found.append(digest.hexdigest())
    return tuple(found)


def _block() -> memoryview:
    """This thread's own: memory taken anew for each file would be given to the process page by page each time."""
    block: memoryview | None = getattr(_of_thread, "block", None)
    if block is None:
        block = _of_thread.block = memoryview(bytearray(BLOCK_BYTES))
    return block


def _pread(descriptor: int, file: SourceFile, *, offset: int, length: int) -> bytes:
    data = os.pread(descriptor, min(length, file.size - offset), offset)
    if len(data) != min(length, file.size - offset):
        raise SourceChangedError(file.location)
    return data


@contextmanager
def _opened(file: SourceFile) -> Iterator[int]:
    """As it was listed, and still so at the end of the block; else SourceChangedError."""
    descriptor = os.open(file.location, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _require_same(file, descriptor)
        yield descriptor
        _require_same(file, descriptor)
    finally:
        os.close(descriptor)


def _require_same(file: SourceFile, descriptor: int) -> None:
    if Fingerprint.of(os.fstat(descriptor)) != file.fingerprint:
        raise SourceChangedError(file.location)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  # a Path costs more than the look, and there are thousands
    except FileNotFoundError:
        return -1
