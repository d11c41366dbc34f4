"""Making an asset of a folder, a file or an archive: nothing is read twice, and nothing is sent twice.

On the service's own machine files are put into the staging folder of its store by the reading that hashes them;
elsewhere the pieces that the service has not are sent, several at once. What is broken off goes on when begun again.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trials.files import write_atomically
from trials.wire.manifests import PIECE_BYTES, AssetFile, ManifestError, digest_of_pieces, pieces_of, write_manifest
from tuner_service.assets.archives import is_archive, unpack_archive
from tuner_service.assets.digest_cache import DigestCache
from tuner_service.assets.hashing import Progress, SourceChangedError, Staging, hash_files, read_piece
from tuner_service.assets.sources import AssetSourceError, IsIgnored, SourceFile, list_files
from tuner_service.client import Client

CONNECTIONS = 4  # that send at once
ROUNDS = 5  # of asking what is missing, before giving up: others may remove what was there
KEPT_AFTER = 256  # files hashed between two savings of the cache
Told = Callable[[str, int, int], None]  # what is done ("reading", "sending"), how many bytes of how many


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What is to be added. ``keep``: it stays until a person removes it; else as long as something names it."""

    source: Path
    kind: str
    name: str | None = None
    keep: bool = True
    is_ignored: IsIgnored | None = None


def add_asset(client: Client, addition: Addition, *, told: Told = lambda what, done, total: None) -> dict[str, Any]:  # noqa: ARG005  # says nothing
    """The asset as the service shows it, with the name and version it has. ClientError says what to do."""
    with _folder_of(addition.source) as source:
        files = list_files(source, is_ignored=addition.is_ignored)
        if not files:
            raise AssetSourceError(f"{addition.source} holds no file; an asset has at least one")
        return _Adding(client, addition, files, told).run()


@contextmanager
def _folder_of(source: Path) -> Iterator[Path]:
    """What an archive holds, in a folder that is removed afterwards; else ``source`` itself."""
    if not is_archive(source):
        yield source
        return
    with TemporaryDirectory(prefix="tuner-archive-") as folder:
        yield unpack_archive(source, Path(folder) / "files")


class _Adding:
    def __init__(self, client: Client, addition: Addition, files: Sequence[SourceFile], told: Told) -> None:
        self._client, self._addition, self._files, self._told = client, addition, files, told
        self._staging = staging_of(client)
        self._digests: dict[str, tuple[str, ...]] = {}  # by location
        self._lock = threading.Lock()

    def run(self) -> dict[str, Any]:
        self._hash()
        for _ in range(ROUNDS):
            data, described = self._manifest()
            if self._send_all(data, described):
                body = {"manifest": described, "kind": self._addition.kind, "keep": self._addition.keep}
                return self._client.add_asset(body | ({"name": self._addition.name} if self._addition.name else {}))
        raise AssetSourceError(
            f"{self._addition.source}: what was sent is missing again, {ROUNDS} times; try again later"
        )

    # ── reading ─────────────────────────────────────────────────────────────────────────────────
    def _hash(self) -> None:
        """What the cache knows and the service has is not read."""
        cache = DigestCache()
        try:
            self._digests = cache.find(self._files)
            self._read([file for file in self._files if not self._is_known(file)], cache)
        finally:
            cache.close()

    def _is_known(self, file: SourceFile) -> bool:
        pieces = self._digests.get(file.location)
        return pieces is not None and (self._staging is None or self._staging.has(digest_of_pieces(pieces), file.size))

    def _read(self, files: Sequence[SourceFile], cache: DigestCache) -> None:
        progress = self._progress("reading", sum(file.size for file in files))
        fresh: dict[SourceFile, tuple[str, ...]] = {}
        try:
            for hashed in hash_files(files, staging=self._staging, progress=progress):
                fresh.update(hashed)
                if len(fresh) >= KEPT_AFTER:
                    self._keep(cache, fresh)
        finally:
            self._keep(cache, fresh)
        cache.forget_oldest()

    def _keep(self, cache: DigestCache, fresh: dict[SourceFile, tuple[str, ...]]) -> None:
        cache.keep(fresh)
        self._digests |= {file.location: pieces for file, pieces in fresh.items()}
        fresh.clear()

    def _manifest(self) -> tuple[bytes, dict[str, Any]]:
        entries = [
            AssetFile(path=f.path, size=f.size, executable=f.executable, pieces=self._digests[f.location])
            for f in self._files
        ]
        try:
            data = write_manifest(entries)
        except ManifestError as error:
            raise AssetSourceError(f"{self._addition.source}: {error}") from error
        pieces = pieces_of(data)
        if self._staging is not None and not self._staging.has(digest_of_pieces(pieces), len(data)):
            write_atomically(str(self._staging.folder / digest_of_pieces(pieces)), data)
        return data, {"size": len(data), "pieces": list(pieces)}

    # ── sending ─────────────────────────────────────────────────────────────────────────────────
    def _send_all(self, data: bytes, described: Mapping[str, Any]) -> bool:
        """Whether nothing was missing at last; else what was is read and sent anew."""
        places = _places(self._files, self._digests)
        own = {piece: data[i * PIECE_BYTES : (i + 1) * PIECE_BYTES] for i, piece in enumerate(described["pieces"])}
        after: int | None = 0
        sent = 0
        while after is not None:
            found = self._client.missing(described, after=after)
            sent += len(found["pieces"])
            self._send(found["pieces"], found["bytes"], places, own)
            after = found["after"]
        return sent == 0 or self._client.missing(described, after=0)["pieces"] == []

    def _send(
        self,
        wanted: Sequence[str],
        size: int,
        places: Mapping[str, tuple[SourceFile, int]],
        own: Mapping[str, bytes],
    ) -> None:
        progress = self._progress("sending", size)
        local = threading.local()
        clients: list[Client] = []

        def send(digest: str) -> None:
            client = getattr(local, "client", None)
            if client is None:
                client = local.client = self._client.another()
                with self._lock:
                    clients.append(client)
            data = own.get(digest)
            if data is None:
                if digest not in places:
                    raise AssetSourceError(
                        f"the service asks for the piece {digest}, which is of no file; is it of this version?"
                    )
                data = _read(*places[digest], digest)
            client.send_piece(digest, data)
            progress(len(data))

        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="send") as pool:
            futures = [pool.submit(send, digest) for digest in wanted]
            try:
                for future in futures:
                    future.result()
            finally:
                for future in futures:
                    future.cancel()
                pool.shutdown(wait=True)
                for client in clients:
                    client.close()

    def _progress(self, what: str, total: int) -> Progress:
        done = 0

        def more(size: int) -> None:
            nonlocal done
            with self._lock:
                done += size
                self._told(what, done, total)

        return more


def staging_of(client: Client) -> Staging | None:
    """Where the service's store is a folder that this process may write to. None: everything is sent.

    Only of a home's own service, and only where the folder is the very one that the service sees: elsewhere a path may
    be another folder, and a service that is not this user's could name one that others read.
    """
    if not client.is_of_home:
        return None
    found = client.asset_store()
    folder, staging = found["folder"], found["staging"]
    if folder is None or staging is None:
        return None
    try:
        status = Path(staging["folder"]).stat()
    except OSError:
        return None
    is_same = (status.st_dev, status.st_ino) == (staging["device"], staging["inode"])
    may_write = os.access(staging["folder"], os.W_OK | os.X_OK) and status.st_uid == os.geteuid()
    return Staging(store=Path(folder), folder=Path(staging["folder"])) if is_same and may_write else None


def _places(files: Iterable[SourceFile], digests: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[SourceFile, int]]:
    return {piece: (file, index) for file in files for index, piece in enumerate(digests[file.location])}


def _read(file: SourceFile, index: int, digest: str) -> bytes:
    data = read_piece(file, index)
    if hashlib.sha256(data).hexdigest() != digest:
        raise SourceChangedError(file.location)
    return data
