"""Checkpoints on their way to the service: their bytes before the report that names them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.storing import StoreHangsError, StoreThreads
from trials.agent.spool import Batch
from trials.files import is_in_the_way, open_file
from trials.stores import StoreUnusableError, place
from trials.wire.encoding import decode_record
from trials.wire.files import FOLDER_CHECKPOINTS
from trials.wire.limits import BLOB_CHUNK_BYTES, CHECKPOINT_INLINE_BYTES, NOT_KEPT
from trials.wire.messages import BlobOffered, BlobStored, Message
from trials.wire.plain import ProtocolError
from trials.wire.records import CheckpointRecord

STORE_TIMEOUT_S = 60.0
STORE_ATTEMPTS = 5  # then the report goes without its bytes: reports must not wait for ever
STORE_PAUSE_S = 1.0
STORED_REMEMBERED = 1_000
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile("[0-9a-f]{64}")
logger = logging.getLogger(__name__)


class SendBlob(Protocol):
    def __call__(self, announcement: Message, data: bytes, *, chunk: int) -> Awaitable[None]: ...


class CheckpointOffers:
    """On one connection. The service answers each offer once the bytes are on its disk."""

    def __init__(
        self,
        home: Home,
        *,
        send: Callable[[Message], Awaitable[None]],
        send_blob: SendBlob,
        threads: StoreThreads | None = None,
    ) -> None:
        self._home = home
        self._threads = threads or StoreThreads()
        self._send = send
        self._send_blob = send_blob
        self._waiting: dict[str, asyncio.Future[BlobStored]] = {}
        # Attempt's folder and file, and when it was saved → where it was put. One that was saved again may be needed
        # again: the first may have been dropped meanwhile.
        self._stored: dict[tuple[str, float], str | None] = {}
        self.store = CheckpointStore("")  # as the service says in its welcome

    async def offer(self, held: HeldAttempt, batch: Batch) -> dict[str, str]:
        """Where the checkpoints that the batch names are now, by digest, of those the database does not take.

        When this returns, the service or the checkpoint store has what the batch names, as far as there is any.
        """
        locations: dict[str, str] = {}
        for line in batch.lines:
            if not line.startswith('{"kind":"metric"') and '"checkpoint"' in line:
                try:
                    record = decode_record(line)
                except ProtocolError as error:
                    logger.warning("record_unreadable", extra={"nonce": held.nonce, "error": error})
                    continue
                if isinstance(record, CheckpointRecord) and (location := await self._offer(held, record)):
                    locations[record.digest] = location
        return locations

    def stored(self, answer: BlobStored) -> None:
        waiting = self._waiting.pop(answer.digest, None)  # it may be that others wait than who offered
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def lose_connection(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()

    async def _offer(self, held: HeldAttempt, record: CheckpointRecord) -> str | None:
        if not NAME.fullmatch(record.name) or not DIGEST.fullmatch(record.digest):
            logger.warning("checkpoint_refused", extra={"nonce": held.nonce, "file": f"{record.name!r:.100}"})
            return None
        where = f"{held.folder.relative_to(self._home.attempts)}/{record.name}"
        if (where, record.at) in self._stored:
            return self._stored[where, record.at]
        path = held.folder / FOLDER_CHECKPOINTS / record.name
        location = None
        if path.is_dir() or record.size > CHECKPOINT_INLINE_BYTES:
            location = await self._put(path, where, record)
            if location is None:
                return None
        elif (data := await asyncio.to_thread(_intact, path, record)) is None:
            logger.warning("checkpoint_not_offered", extra={"path": path})  # deleted meanwhile, or damaged
            return None
        elif not await self._store(data, record):
            logger.error("checkpoint_not_stored", extra={"nonce": held.nonce, "digest": record.digest})
            return None
        self._stored[where, record.at] = location
        while len(self._stored) > STORED_REMEMBERED:
            del self._stored[next(iter(self._stored))]
        return location

    async def _put(self, path: Path, where: str, record: CheckpointRecord) -> str | None:
        """Its digest is not looked at: whoever restores it does, and 200 MB take a core for 0.1 s.

        Of a store that hangs the reports wait no longer than for one that answers slowly; they go without its bytes.
        """
        store, here = self.store, partial(self._keep_here, path, record.digest)
        put = partial(_put_into, store, path, where) if store.is_named else here
        for attempt in range(STORE_ATTEMPTS):
            try:
                return await self._threads.run(put, root=store.root or str(self._home.checkpoints), size=record.size)
            except (StoreUnusableError, StoreHangsError) as error:
                logger.error("checkpoint_not_put", extra={"path": path, "error": error})
                return None
            except OSError as error:
                if is_in_the_way(error) or not path.exists():
                    logger.warning("checkpoint_not_offered", extra={"path": path, "error": error})  # deleted meanwhile
                    return None
                logger.error("checkpoint_not_put", extra={"path": path, "error": error})
            if attempt + 1 < STORE_ATTEMPTS:
                await asyncio.sleep(STORE_PAUSE_S * 2**attempt)
        return None

    def _keep_here(self, path: Path, digest: str, moved: Callable[[], None]) -> str:
        """A copy in the home folder's own store."""
        target = self._home.checkpoints / digest
        if not target.exists():
            place(path, target, moved=moved)
        return str(target)

    async def _store(self, data: bytes, record: CheckpointRecord) -> bool:
        for attempt in range(STORE_ATTEMPTS):
            waiting = self._waiting.get(record.digest)
            if waiting is None:
                waiting = self._waiting[record.digest] = asyncio.get_running_loop().create_future()
                await self._send_offer(data, record, waiting)
            try:
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    answer = await asyncio.shield(waiting)
            except TimeoutError:
                if self._waiting.get(record.digest) is waiting:
                    del self._waiting[record.digest]
                continue
            if answer.error is None:
                return True
            logger.warning("checkpoint_refused", extra={"digest": record.digest, "error": answer.error})
            if answer.error.endswith(NOT_KEPT):
                return False
            await asyncio.sleep(STORE_PAUSE_S * 2**attempt)
        return False

    async def _send_offer(self, data: bytes, record: CheckpointRecord, waiting: asyncio.Future[BlobStored]) -> None:
        """Where it is cut off, others that wait for the answer to it offer the same bytes at once."""
        try:
            offered = BlobOffered(digest=record.digest, size=record.size)
            await self._send_blob(offered, data, chunk=BLOB_CHUNK_BYTES)
        except BaseException:
            if self._waiting.get(record.digest) is waiting:
                del self._waiting[record.digest]
                waiting.set_exception(TimeoutError("it was not sent"))
                waiting.exception()  # it may be that nobody else waits
            raise


def _put_into(store: CheckpointStore, path: Path, name: str, moved: Callable[[], None]) -> str:
    return store.put(path, name, moved=moved)


def step_of_checkpoint(lines: Sequence[str]) -> int | None:
    """Of the newest checkpoint that the lines name."""
    for line in reversed(lines):
        if not line.startswith('{"kind":"metric"') and '"checkpoint"' in line:
            with suppress(ProtocolError):
                record = decode_record(line)
                if isinstance(record, CheckpointRecord):
                    return record.step
    return None


def _intact(path: Path, record: CheckpointRecord) -> bytes | None:
    """What was saved, read once: the file may become another one at any time."""
    try:
        descriptor = open_file(str(path))
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123  a descriptor
            data = file.read(record.size + 1)
    except OSError:
        return None
    return data if len(data) == record.size and hashlib.sha256(data).hexdigest() == record.digest else None
