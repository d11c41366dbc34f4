"""Bytes by digest: asked of the service in pieces, verified, and kept for a while."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from trials.agent.home import Home, plain_name
from trials.files import remove_tree
from trials.stores import clear, is_draft
from trials.wire.messages import BlobSent
from trials.wire.plain import ProtocolError

INCOMING_KEPT = 8  # the oldest blobs beyond are removed; what uses one has a link or a copy
CODE_KEPT = 32  # unpacked revisions; the least recently used beyond are removed
BLOB_LIMIT_BYTES = 4 << 30
PARTIAL = ".part"
HALF = "half-"  # begins the name of what is made in the agent's folder, and moved or removed at once
logger = logging.getLogger(__name__)


class BlobMissingError(LookupError):
    """The service has no such blob, or what it sent is not it."""


class ConnectionLostError(ConnectionError):
    """The channel closed before the blob was complete; it is asked for again with the next launch."""


class BlobReceiver:
    """Blobs that were asked for on one channel. The service sends one after the other."""

    def __init__(self, folder: Path, *, ask: Callable[[str], Awaitable[None]]) -> None:
        self._folder = folder
        self._ask = ask
        self._waiting: dict[str, asyncio.Future[Path]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_lost = False
        self._current: BlobSent | None = None
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._received = 0
        self._held: Counter[str] = Counter()

    @contextmanager
    def holding(self, *digests: str) -> Iterator[None]:
        """What has these digests, here or unpacked, is not removed to make room as long as the block runs."""
        self._held.update(digests)
        try:
            yield
        finally:
            self._held -= Counter(digests)

    def held(self) -> Collection[str]:
        return self._held.keys()

    async def get(self, digest: str) -> Path:
        """The verified file. BlobMissingError, ConnectionLostError; OSError where it cannot be written down.

        It is asked for once, and comes also where whoever wanted it first has gone: others may wait for it.
        """
        path = self._folder / plain_name(digest, what="digest")
        if path.exists():
            return path
        if self._is_lost:
            raise ConnectionLostError("the channel closed")
        waiting = self._waiting.get(digest)
        if waiting is None:
            waiting = self._waiting[digest] = asyncio.get_running_loop().create_future()
            self._begin(self._put_question(digest, waiting))
        return await asyncio.shield(waiting)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _put_question(self, digest: str, waiting: asyncio.Future[Path]) -> None:
        try:
            await self._ask(digest)
        except Exception as error:  # noqa: BLE001  whatever it is: without an answer to come, nobody is to wait
            if self._waiting.get(digest) is waiting:
                self._fail(digest, ConnectionLostError(f"it could not be asked for: {error}"))

    def begin(self, sent: BlobSent) -> None:
        self._drop_current()
        if sent.digest not in self._waiting:
            raise ProtocolError(f"blob {sent.digest} was not asked for")
        if not 0 <= sent.size <= BLOB_LIMIT_BYTES:
            known = "is unknown to the service" if sent.size < 0 else f"has {sent.size} bytes, over the limit"
            self._fail(sent.digest, BlobMissingError(f"blob {sent.digest} {known}"))
            return
        self._current, self._received, self._hash = sent, 0, hashlib.sha256()
        try:
            self._file = self._partial(sent.digest).open("wb")
            self._finish_if_complete(sent)
        except OSError as error:
            self._give_up(sent, error)

    def feed(self, data: bytes) -> None:
        sent = self._current
        if sent is None:
            raise ProtocolError(f"{len(data)} bytes came that belong to no blob")
        self._received += len(data)
        try:
            if self._file is not None:
                self._file.write(data)
                self._hash.update(data)
            self._finish_if_complete(sent)
        except OSError as error:
            self._give_up(sent, error)

    def lose_connection(self) -> None:
        self._is_lost = True
        self._drop_current()
        for digest in list(self._waiting):
            self._fail(digest, ConnectionLostError("the channel closed"))

    def _finish_if_complete(self, sent: BlobSent) -> None:
        if self._received < sent.size:
            return
        if self._file is None:  # it was given up; this was the rest of it
            self._current = None
            return
        self._file.close()
        if self._received != sent.size or self._hash.hexdigest() != sent.digest:
            self._drop_current(BlobMissingError(f"what came for blob {sent.digest} has another digest"))
            return
        path = self._folder / sent.digest
        self._partial(sent.digest).replace(path)
        self._current = self._file = None
        waiting = self._waiting.pop(sent.digest, None)
        if waiting is not None:
            waiting.set_result(path)
        self._begin(asyncio.to_thread(self.make_room))  # whole folders may go, fetched from a store

    def make_room(self) -> None:
        """The oldest beyond those that are kept go, but for what is held. Any thread; never raises."""
        try:
            remove_oldest(self._folder, keep=INCOMING_KEPT, but=self._held)
        except OSError as error:
            logger.warning("blobs_not_removed", extra={"folder": self._folder, "error": error})

    def _give_up(self, sent: BlobSent, error: OSError) -> None:
        """It cannot be written down, as on a full disk; what still comes of it is passed over."""
        logger.error("blob_not_kept", extra={"digest": sent.digest, "error": error})
        self._fail(sent.digest, error)
        self._drop_current()
        if self._received < sent.size:
            self._current = sent

    def _partial(self, digest: str) -> Path:
        return self._folder / f"{digest}{PARTIAL}"

    def _drop_current(self, error: Exception | None = None) -> None:
        """Nobody waits for it any more, whatever the disk says."""
        sent, file = self._current, self._file
        self._current = self._file = None
        if sent is None or file is None:
            return
        self._fail(sent.digest, error or ConnectionLostError("it was cut off"))
        with suppress(OSError):
            self._partial(sent.digest).unlink()
        with suppress(OSError):
            file.close()

    def _fail(self, digest: str, error: Exception) -> None:
        future = self._waiting.pop(digest, None)
        if future is not None:
            future.set_exception(error)
            future.exception()  # it may be that nobody waits any more


def remove_oldest(folder: Path, *, keep: int, but: Collection[str]) -> None:
    """All but the ``keep`` entries that were touched last, and those of these names."""
    entries = sorted(folder.iterdir(), key=_touched_at, reverse=True)
    for path in entries[keep:]:
        if path.name.partition(".")[0] in but:  # a draft of it, too
            continue
        if path.is_dir():
            remove_tree(path, ignore_errors=True)  # another thread may be doing the same
        else:
            path.unlink(missing_ok=True)


def drop_left(home: Home) -> None:
    """What an agent that was killed has fetched, unpacked, copied or sent in part, and the oldest blobs beyond those
    that are kept. Never raises."""
    try:
        half = [path for path in home.incoming.iterdir() if PARTIAL in path.name]
        drafts = [path for path in home.checkpoints.iterdir() if is_draft(path)]
        for path in [*half, *drafts, *home.agent.glob(f"{HALF}*"), home.outgoing]:
            clear(path)
        remove_oldest(home.incoming, keep=INCOMING_KEPT, but=())
    except OSError as error:
        logger.warning("blobs_not_removed", extra={"folder": home.agent, "error": error})


def _touched_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0  # removed meanwhile


def unpack_code(home: Home, archive: Path, digest: str, *, but: Collection[str] = ()) -> Path:
    """The archive's files in a folder of their own; in one step, so a folder that is there is complete.

    ``but``: other revisions that are not to be removed to make room.
    """
    folder = home.code / plain_name(digest, what="digest")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=home.agent, prefix=HALF) as own:
            partial = Path(own) / "code"
            with tarfile.open(archive, "r:gz") as tar:
                _extract(tar, partial)
            try:
                partial.replace(folder)
            except OSError:
                if not folder.exists():  # it does where another launch of the same code was quicker
                    raise
    folder.touch()
    remove_oldest(home.code, keep=CODE_KEPT, but=but)
    return folder


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Plain files below ``folder``, which is made; TarError for anything else.

    Written out because ``extractall(filter="data")`` came with Python 3.11.4, and Debian 12 has 3.11.2.
    """
    folder.mkdir()
    for entry in tar:
        path = PurePosixPath(entry.name)
        content = tar.extractfile(entry) if entry.isreg() else None
        if content is None or path.is_absolute() or ".." in path.parts:
            raise tarfile.ExtractError(f"{entry.name!r} is no plain file inside the code")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file)
        target.chmod(entry.mode & 0o700)
