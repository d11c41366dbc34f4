"""What an agent asks for on its channel: bytes of blobs, and what other trials have saved.

An agent asks once, and waits for as long as it is connected. So each question is answered, or the channel ends, and it
asks again on the next one: a read that fails once, as while the database's server starts anew, must leave no trial
waiting for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.limits import BLOB_CHUNK_BYTES
from trials.wire.messages import BlobSent, ToAgent
from trials.wire.plain import ProtocolError
from tuner_service.domain.errors import StorageError
from tuner_service.ports import Queries
from tuner_service.service.checkpoints import blob_for, checkpoints_for

DIGEST_LIMIT = 128  # characters
WANTED_LIMIT = 1_000  # blobs that wait to be sent on one channel
SEARCHES_LIMIT = 10_000  # for checkpoints, likewise: of each trial of a node that runs there is one at most
NAME_LIMIT = 200  # characters of what a search names
logger = logging.getLogger(__name__)


class _Blob:
    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


_on_their_way: WeakValueDictionary[str, _Blob] = WeakValueDictionary()  # what all nodes ask for at once is here once


class Asked:
    """By one agent, on the event loop of its channel.

    ``put`` puts the parts of a blob behind what is to be sent; the event at its end is set when they were. ``send``
    sends a message; ``hang_up`` ends the channel.
    """

    def __init__(
        self,
        queries: Queries,
        agent_id: str,
        *,
        put: Callable[[BlobSent | memoryview | asyncio.Event], None],
        send: Callable[[ToAgent], None],
        hang_up: Callable[[], None],
    ) -> None:
        self._queries, self._agent_id = queries, agent_id
        self._put, self._send, self._hang_up = put, send, hang_up
        self._wanted: dict[str, None] = {}  # digests, in the order in which they were asked for
        self._searches: deque[CheckpointsWanted] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._searching: asyncio.Task[None] | None = None

    def blob(self, digest: str) -> None:
        """ProtocolError for more than an agent asks for."""
        if digest in self._wanted:
            return
        if len(digest) > DIGEST_LIMIT or len(self._wanted) >= WANTED_LIMIT:
            raise ProtocolError(f"{digest[:DIGEST_LIMIT]!r} is no digest, or more than {WANTED_LIMIT} blobs are wanted")
        self._wanted[digest] = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_blobs())
            self._sending.add_done_callback(self._answered)

    def checkpoints(self, wanted: CheckpointsWanted) -> None:
        """ProtocolError for more than an agent asks for."""
        longest = max(map(len, (wanted.request_id, wanted.nonce, wanted.experiment_id)))
        if longest > NAME_LIMIT or len(self._searches) >= SEARCHES_LIMIT:
            raise ProtocolError(f"names of {longest} characters, or more than {SEARCHES_LIMIT} searches wait")
        self._searches.append(wanted)
        if self._searching is None or self._searching.done():
            self._searching = asyncio.ensure_future(self._search())
            self._searching.add_done_callback(self._answered)

    def close(self) -> None:
        """Nobody is there any more."""
        for task in (self._sending, self._searching):
            if task is not None:
                task.cancel()

    async def _send_blobs(self) -> None:
        """One after the other, each read when the one before has left: a slow agent has one of them in memory."""
        while self._wanted:
            await self._send_blob(next(iter(self._wanted)))

    async def _send_blob(self, digest: str) -> None:
        try:
            data = await asyncio.to_thread(blob_for, self._queries, digest, agent_id=self._agent_id)
        except StorageError as error:  # it is damaged, and will be
            logger.error("blob_not_sent", extra={"agent": self._agent_id, "digest": digest, "error": str(error)})
            data = None
        del self._wanted[digest]  # from here on, who asks again could not use what comes
        blob = None if data is None else _on_their_way.setdefault(digest, _Blob(data))
        del data
        # All is put in one go, so that no other message comes between the header and its bytes.
        self._put(BlobSent(digest=digest, size=-1 if blob is None else len(blob.data)))
        if blob is not None:
            for start in range(0, len(blob.data), BLOB_CHUNK_BYTES):
                self._put(memoryview(blob.data)[start : start + BLOB_CHUNK_BYTES])
        await self._left()

    async def _search(self) -> None:
        """One after the other, likewise: an agent that asks very often takes one thread, and waits for itself alone."""
        while self._searches:
            await self._send_checkpoints(self._searches.popleft())

    async def _send_checkpoints(self, wanted: CheckpointsWanted) -> None:
        try:
            found = await asyncio.to_thread(checkpoints_for, self._queries, wanted, agent_id=self._agent_id)
        except StorageError as error:
            found = CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, error=str(error))
        self._send(found)
        await self._left()

    async def _left(self) -> None:
        """What was put and sent so far has left for the agent."""
        has_left = asyncio.Event()
        # Behind a message, which ``send`` puts with the next turn.
        asyncio.get_running_loop().call_soon(self._put, has_left)
        await has_left.wait()

    def _answered(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("agent_not_answered", extra={"agent": self._agent_id, "error": repr(error)})
            self._hang_up()
