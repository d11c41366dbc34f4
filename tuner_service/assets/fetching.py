"""An asset laid out in a folder: each file verified as it comes, and the folder whole or not there."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from trials.files import sync_folder
from trials.stores import clone, opened_file, sync_filesystem
from trials.wire.manifests import PIECE_BYTES, AssetFile, ManifestError, digest_of_pieces, pieces_of, read_manifest
from tuner_service.assets.adding import CONNECTIONS, Told
from tuner_service.assets.sources import AssetSourceError
from tuner_service.client import Client

PARTIAL = ".part"  # beside the folder, until it is whole; a second call goes on with it
RETRIES = 2  # of a piece that is damaged on its way


def get_asset(client: Client, reference: str, target: Path, *, told: Told = lambda what, done, total: None) -> Path:  # noqa: ARG005  # says nothing
    """The asset's files in the new folder ``target``; what came already is not fetched again.

    Where it cannot come to lie there, that is said before anything is fetched.
    """
    target = _without_link(target)
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise AssetSourceError(f"{target} is there already; name a folder that is new or empty")
    if target.exists() and target.samefile("."):  # whoever is there would stay in one that is gone
        raise AssetSourceError(f"{target} is the folder that this was started in; name a new one, such as ./fetched")
    view = client.asset(reference)
    # Of this asset and no other: files of two that share a path and a size cannot be told apart by these.
    partial = target.with_name(f"{target.name}.{view['id'][:16]}{PARTIAL}")
    partial.mkdir(parents=True, exist_ok=True)
    with _alone_in(partial):
        if target.exists():
            _remove_empty(target)
        files = _manifest(client, view["id"])
        _remove_strays(partial, {file.path for file in files})
        _Fetching(client, partial, told, total=sum(file.size for file in files)).run(files)
        sync_filesystem(str(partial))
        partial.replace(target)
    sync_folder(str(target.parent))
    return target


def _without_link(target: Path) -> Path:
    """The folder that a link means: it is replaced, and the link stays."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def _remove_empty(folder: Path) -> None:
    """What comes takes its place as a whole: AssetSourceError where it stays, as a file system that is mounted does."""
    try:
        folder.rmdir()
    except OSError as error:
        raise AssetSourceError(
            f"{folder} cannot be replaced ({error.strerror}); name a folder that is not there yet, such as "
            f"{folder / 'fetched'}"
        ) from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """AssetSourceError while another command fetches into the folder. Whoever is killed gives its lock up."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AssetSourceError(
            f"another command is fetching into {folder}; wait for it, or name another folder"
        ) from None
    else:
        yield
    finally:
        os.close(lock)


def _remove_strays(folder: Path, wanted: Collection[str]) -> None:
    """What a command that was killed left half written, or anybody put there."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.relative_to(folder).as_posix() not in wanted:
                path.unlink()


def _manifest(client: Client, asset_id: str) -> list[AssetFile]:
    data = bytearray()
    while True:
        part = client.asset_bytes(asset_id, offset=len(data), length=PIECE_BYTES)
        data += part
        if len(part) < PIECE_BYTES:
            break
    if digest_of_pieces(pieces_of(bytes(data))) != asset_id:
        raise AssetSourceError(f"the manifest of asset {asset_id} came damaged; `tuner doctor` looks at the store")
    try:
        return list(read_manifest(io.BytesIO(data)))
    except ManifestError as error:
        raise AssetSourceError(f"the manifest of asset {asset_id} makes no sense: {error}") from error


class _Fetching:
    def __init__(self, client: Client, folder: Path, told: Told, *, total: int) -> None:
        self._client, self._folder, self._told, self._total = client, folder, told, total
        self._done = 0
        self._is_over = False  # what is on its way is given up at its next piece
        self._lock = threading.Lock()
        self._local = threading.local()
        self._clients: list[Client] = []
        store = client.asset_store()["folder"] if client.is_of_home else None
        self._store = None if store is None else Path(store)

    def run(self, files: list[AssetFile]) -> None:
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fetch") as pool:
            futures = [pool.submit(self._fetch, file) for file in files]
            try:
                for future in futures:
                    future.result()
            finally:
                self._is_over = True
                for future in futures:
                    future.cancel()
                pool.shutdown(wait=True)
                for client in self._clients:
                    client.close()

    def _fetch(self, file: AssetFile) -> None:
        target = self._folder / file.path
        if target.is_file() and not target.is_symlink() and _verified(target, file):
            self._more(file.size)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        # The name of the file itself may be as long as one can be.
        draft = target.with_name(f".{threading.get_ident()}{PARTIAL}")
        try:
            if not self._clone(file, draft):
                self._receive(file, draft)
            draft.chmod(0o755 if file.executable else 0o644)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    def _clone(self, file: AssetFile, draft: Path) -> bool:
        """From a store of this machine that can share blocks; what is shared is verified, too."""
        if self._store is None:
            return False
        try:
            source = opened_file(self._store / "files" / file.digest[:2] / file.digest)
        except OSError:
            return False
        with source, draft.open("wb") as writing:
            if not clone(source.fileno(), writing.fileno()):
                shutil.copyfileobj(source, writing, PIECE_BYTES)
        if _verified(draft, file):
            self._more(file.size)
            return True
        return False

    def _receive(self, file: AssetFile, draft: Path) -> None:
        with draft.open("wb") as writing:
            for index, piece in enumerate(file.pieces):
                if self._is_over:
                    raise AssetSourceError(f"{file.path} was broken off")
                writing.write(self._piece(file, index, piece))
                self._more(file.piece_size(index))

    def _piece(self, file: AssetFile, index: int, piece: str) -> bytes:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._client.another()
            with self._lock:
                self._clients.append(client)
        for _ in range(1 + RETRIES):
            data: bytes = client.asset_bytes(file.digest, offset=index * PIECE_BYTES, length=file.piece_size(index))
            if hashlib.sha256(data).hexdigest() == piece:
                return data
        raise AssetSourceError(f"{file.path} came damaged {1 + RETRIES} times; `tuner doctor` looks at the store")

    def _more(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._told("fetching", self._done, self._total)


def _verified(path: Path, file: AssetFile) -> bool:
    with path.open("rb") as content:
        return path.stat().st_size == file.size and all(
            hashlib.sha256(content.read(PIECE_BYTES)).hexdigest() == piece for piece in file.pieces
        )
