"""What trials of this node are given of assets: each fetched once, laid out once, and shared by all of them.

    HOME/agent/assets/DIGEST/N         a tree, whose files and folders nobody may write into
    HOME/agent/assets/DIGEST/N.files   what lies in it: size, time and inode of each file; there once the tree is whole

A trial is given the path of the tree itself. Where the file system shares blocks, files are clones of the store's; else
they are copies. Their rights keep a trial from writing into them, unless it runs as root: damage is noticed, before the
next trial is given the tree, and never prevented. A damaged tree stays for those that have it, and N counts on.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from trials.agent.home import plain_name
from trials.agent.threads import begun_apart
from trials.files import is_full_disk, write_all, write_atomically
from trials.files import remove_tree as remove_folder
from trials.stores import FileStore, StoreError, clone, matching, opened_file
from trials.wire.manifests import PIECE_BYTES, AssetFile, ManifestError, digest_of_pieces, read_manifest

CACHE_BYTES = 64 << 30  # of all trees together; beyond, those that were not used for longest go, but none in use
FETCH_ATTEMPTS = 3  # of a file whose bytes are not those that its digest names
READ_BYTES = 1 << 20
COPIERS = 4  # files at once
DAMAGE_NAMED = 5
LISTING = ".files"
GONE = "gone-"  # begins the name of a tree that is being removed
logger = logging.getLogger(__name__)


class AssetUnusableError(Exception):
    """The asset cannot be had, now or later; the text says why."""


class AssetMissingError(AssetUnusableError):
    """The store has it not, or damaged: a person may bring it back."""


class NodeCache:
    """Lives in one event loop. ``in_use``: the digests of what trials that run were given."""

    def __init__(self, folder: Path, *, in_use: Callable[[], Collection[str]]) -> None:
        self._folder = folder
        self._in_use = in_use
        self._fetching: dict[str, asyncio.Future[Path]] = {}
        self._held: Counter[str] = Counter()
        self._choosing = threading.Lock()  # held while a tree is chosen, for a trial or to be removed
        self.store: FileStore | None = None  # as the service says in its welcome
        self.limit_bytes = CACHE_BYTES

    def drop_left(self) -> threading.Thread:
        """Before the first ``get``: what a killed agent has laid out, or removed, in part goes, in a thread."""
        left: list[Path] = []
        for path in matching(self._folder, "*/*"):
            if path.name.endswith(LISTING) or _listing_of(path).exists():
                continue
            with suppress(OSError):
                if not path.name.startswith(GONE):
                    remove_tree(path.with_name(f"{GONE}{path.name}"))
                    path = path.rename(path.with_name(f"{GONE}{path.name}"))  # noqa: PLW2901  the same tree
                left.append(path)
        for folder in matching(self._folder, "*"):
            with suppress(OSError):  # there is something in it
                folder.rmdir()
        removing = threading.Thread(target=_remove_all, args=(left,), name="old-trees", daemon=True)
        removing.start()
        return removing

    @contextmanager
    def holding(self, digests: Collection[str]) -> Iterator[None]:
        """They are not removed to make room as long as the block runs."""
        self._held.update(digests)
        try:
            yield
        finally:
            self._held -= Counter(digests)

    async def get(self, digest: str) -> Path:
        """The tree of the asset, verified. However many ask at once, it is fetched once.

        AssetUnusableError where it never can be had; OSError where it may be had later.
        """
        fetching = self._fetching.get(digest)
        if fetching is None:
            fetching = self._fetching[digest] = begun_apart(partial(self._get, digest))
            fetching.add_done_callback(lambda _: self._fetching.pop(digest, None))
        return await asyncio.shield(fetching)

    # ── in a thread ─────────────────────────────────────────────────────────────────────────────
    def _get(self, digest: str) -> Path:
        folder = self._folder / plain_name(digest, what="asset")
        with self._choosing:
            tree = newest_tree(folder)
            if tree is not None:
                os.utime(_listing_of(tree))
        if tree is not None:
            damage = damage_of(tree)
            if not damage:
                return tree
            logger.error("asset_damaged", extra={"digest": digest, "tree": tree, "what": damage})
        return self._fetched(digest, folder)

    def _fetched(self, digest: str, folder: Path) -> Path:
        store = self.store
        if store is None:
            raise AssetMissingError("the service has named no store of assets")
        try:
            return self._lay_out(store, digest, folder)
        except OSError as error:
            if not is_full_disk(error) or not self._make_room(0):
                raise
        return self._lay_out(store, digest, folder)  # with what nobody used gone

    def _lay_out(self, store: FileStore, digest: str, folder: Path) -> Path:
        tree = _next_tree(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in [tree, *folder.glob(f"{GONE}*")]:  # of a fetch, or of a removal, that was cut off
            remove_tree(left)
        tree.mkdir(mode=0o700)
        try:
            files = _manifest(store, digest)
            size = sum(file.size for file in files)
            self._make_room(self.limit_bytes - size)
            for place in {(tree / file.path).parent for file in files}:
                place.mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(COPIERS) as pool:
                for _ in pool.map(lambda file: _bring(store, file, tree / file.path), files):
                    pass
            for parent, _, _ in os.walk(tree, topdown=False):
                os.chmod(parent, 0o500)  # noqa: PTH101
            listing = [f"{size}\n", *(f"{line}\n" for line in lines_of(tree))]
            write_atomically(str(_listing_of(tree)), "".join(listing).encode())
        except BaseException:
            remove_tree(tree)
            raise
        return tree

    def _make_room(self, limit: int) -> bool:
        """Remove what was not used for longest, until no more than ``limit`` bytes are left; whether any was."""
        found = sorted(self._trees(), key=lambda entry: entry[0])
        total = sum(size for _, size, _ in found)
        removed = False
        for _, size, tree in found:
            with self._choosing:
                digest = tree.parent.name
                is_needed = digest in self._held or digest in self._fetching or digest in self._in_use()
                is_damaged = newest_tree(tree.parent) != tree  # another one took its place
                if is_needed or (total <= limit and not is_damaged):
                    continue
                gone = tree.with_name(f"{GONE}{tree.name}")
                with suppress(OSError):
                    _listing_of(tree).unlink()  # first: without it there is no tree
                    tree.rename(gone)
            with suppress(OSError):
                remove_tree(gone)
            total -= size
            removed = True
        return removed

    def _trees(self) -> Iterator[tuple[float, int, Path]]:
        """When each was used last, how large it is, and where."""
        for listing in self._folder.glob(f"*/*{LISTING}"):
            try:
                with listing.open(encoding="utf-8") as file:
                    size = int(file.readline())
                yield listing.stat().st_mtime, size, listing.with_suffix("")
            except (OSError, ValueError):
                continue


# ── trees ───────────────────────────────────────────────────────────────────────────────────────
def newest_tree(folder: Path) -> Path | None:
    """The one that is whole and was laid out last."""
    numbers = [int(path.stem) for path in folder.glob(f"*{LISTING}") if path.stem.isascii() and path.stem.isdecimal()]
    return folder / str(max(numbers)) if numbers else None


def _next_tree(folder: Path) -> Path:
    newest = newest_tree(folder)
    return folder / str(1 if newest is None else int(newest.name) + 1)


def _listing_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}{LISTING}")


def damage_of(tree: Path) -> str:
    """What of the tree is not as it was laid out, by size, time and inode; "" where nothing is."""
    try:
        listed = set(_listing_of(tree).read_text(encoding="utf-8").splitlines()[1:])
        found = set(lines_of(tree))
    except (OSError, ValueError) as error:
        return f"it cannot be read: {error}"
    changed = sorted({line.split(" ", 3)[3] for line in listed ^ found})
    more = f" and {len(changed) - DAMAGE_NAMED} more" if len(changed) > DAMAGE_NAMED else ""
    return ", ".join(changed[:DAMAGE_NAMED]) + more


def lines_of(tree: Path) -> Iterator[str]:
    """Size, time, inode and path of everything in the tree but folders, which are looked into."""
    waiting = _entries_of(tree, "")  # what comes next stands last
    while waiting:
        path, entry = waiting.pop()
        if entry.is_dir(follow_symlinks=False):
            waiting += _entries_of(tree, f"{path}/")
            continue
        status = entry.stat(follow_symlinks=False)
        size = status.st_size if stat.S_ISREG(status.st_mode) else -1
        yield f"{size} {status.st_mtime_ns} {status.st_ino} {path!a}"


def _entries_of(tree: Path, place: str) -> list[tuple[str, os.DirEntry[str]]]:
    with os.scandir(tree / place) as entries:
        return [(f"{place}{e.name}", e) for e in sorted(entries, key=lambda e: e.name, reverse=True)]


def remove_tree(tree: Path) -> None:
    """Folders of it may not be written into. Another thread may be doing the same."""
    if not os.path.lexists(tree):
        return
    waiting = [str(tree)]
    while waiting:
        folder = waiting.pop()
        with suppress(OSError):
            os.chmod(folder, 0o700)  # noqa: PTH101
            with os.scandir(folder) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def tell(error: BaseException) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    remove_folder(tree, onerror=lambda _function, _name, info: tell(info[1]))


def _remove_all(paths: Collection[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)


# ── files ───────────────────────────────────────────────────────────────────────────────────────
def _manifest(store: FileStore, digest: str) -> list[AssetFile]:
    try:
        with store.opened(_name(digest)) as stream:
            files = list(read_manifest(stream))
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise AssetMissingError(f"asset sha256:{digest} is not in the store {store.root}") from error
        raise
    except ManifestError as error:
        raise AssetMissingError(f"the manifest of asset sha256:{digest} is damaged: {error}") from error
    return files


def _bring(store: FileStore, file: AssetFile, target: Path) -> None:
    """The file, with the bytes that its digest names; AssetUnusableError where the store has others."""
    for _ in range(FETCH_ATTEMPTS):
        try:
            found = _cloned(store, file, target) or _copied(store, file, target)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise AssetMissingError(f"{file.path} ({file.digest}) is not in the store {store.root}") from error
            raise
        if found == file.digest:
            target.chmod(0o500 if file.executable else 0o400)
            return
        logger.warning("asset_file_damaged", extra={"path": file.path, "digest": file.digest, "found": found})
        target.unlink()
    raise AssetMissingError(
        f"{file.path} is damaged in the store {store.root}: its digest is not {file.digest}; run `tuner doctor`"
    )


def _cloned(store: FileStore, file: AssetFile, target: Path) -> str | None:
    """The digest of a file that shares its blocks with the store's; None where that cannot be."""
    if store.folder is None:
        return None
    try:
        with opened_file(store.folder / _name(file.digest)) as reading, target.open("xb") as writing:
            shared = clone(reading.fileno(), writing.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        return None  # copying says why
    if not shared:
        target.unlink()
        return None
    with target.open("rb") as reading:
        return _hashed(iter(lambda: reading.read(READ_BYTES), b""), writing=None)


def _copied(store: FileStore, file: AssetFile, target: Path) -> str:
    with store.opened(_name(file.digest)) as reading, target.open("xb") as writing:
        try:
            return _hashed(iter(lambda: reading.read(READ_BYTES), b""), writing=writing.fileno())
        except BaseException:
            target.unlink()
            raise


def _hashed(blocks: Iterator[bytes], *, writing: int | None) -> str:
    """The digest of a file of these blocks, which are written as they come."""
    pieces: list[str] = []
    piece, size = hashlib.sha256(), 0
    for block in blocks:
        if writing is not None:
            write_all(writing, block)
        rest = memoryview(block)
        while rest:
            part = rest[: PIECE_BYTES - size]
            piece.update(part)
            size += len(part)
            rest = rest[len(part) :]
            if size == PIECE_BYTES:
                pieces.append(piece.hexdigest())
                piece, size = hashlib.sha256(), 0
    if size or not pieces:
        pieces.append(piece.hexdigest())
    return digest_of_pieces(pieces)


def _name(digest: str) -> str:
    return f"files/{digest[:2]}/{digest}"
