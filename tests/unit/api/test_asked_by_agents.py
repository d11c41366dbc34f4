"""What an agent asks for on its channel: it is answered, or the channel ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.api.test_agent_channel import Script, a_hello, kinds, welcome
from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.encoding import encode
from trials.wire.limits import BLOB_CHUNK_BYTES
from trials.wire.messages import BlobSent, BlobWanted, Message
from trials.wire.outputs import OutputOffered
from trials.wire.plain import ProtocolError
from tuner_service.api import agents, asked_by_agents
from tuner_service.api.asked_by_agents import WANTED_LIMIT, Asked
from tuner_service.domain.errors import StorageError, UnavailableError

CODE, OTHER = "c" * 64, "d" * 64
CHECKPOINTS = CheckpointsWanted(request_id="r", nonce="n", experiment_id="e", number=1)
LONG = bytes(2 * BLOB_CHUNK_BYTES + 1)


class Staying(Script):
    """An agent that does not leave by itself."""

    def __init__(self, *said: Message) -> None:
        super().__init__([encode(message) for message in said], welcome)

    async def receive(self) -> dict[str, Any]:
        if not self._frames:
            await asyncio.Event().wait()
        return await super().receive()

    async def send_bytes(self, data: bytes) -> None: ...

    def sent_when(self, is_enough: Callable[[], bool]) -> list[dict[str, Any]]:
        async def scene() -> None:
            talking = asyncio.ensure_future(self.talk(a_hello()))
            async with asyncio.timeout(30):
                while not is_enough():
                    await asyncio.sleep(0)
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)

        asyncio.run(scene())
        return self.sent


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(asked_by_agents, "blob_for", fail)
    monkeypatch.setattr(asked_by_agents, "checkpoints_for", fail)


@pytest.mark.parametrize("asked", [BlobWanted(digest=CODE), CHECKPOINTS], ids=lambda asked: asked.kind)
def test_what_cannot_be_read_now_ends_the_channel_so_that_it_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, asked: Message
) -> None:
    """It is asked for once on each channel: a launch, or a script, would wait for as long as that is there."""
    failing(monkeypatch, UnavailableError("the server of the database went away"))

    asyncio.run(asyncio.wait_for(Staying(asked).talk(a_hello()), 30))


@pytest.mark.parametrize("asked", [BlobWanted(digest=CODE), CHECKPOINTS], ids=lambda asked: asked.kind)
def test_what_is_damaged_is_said_to_be_not_there(monkeypatch: pytest.MonkeyPatch, asked: Message) -> None:
    failing(monkeypatch, StorageError("it has 3 of its 7 bytes"))
    agent = Staying(asked)

    answer = agent.sent_when(lambda: len(kinds(agent)) > 1)[-1]

    assert (answer.get("size"), answer.get("error")) in {(-1, None), (None, "it has 3 of its 7 bytes")}


class Outbox:
    """What one agent is to be sent; ``take`` sends up to the end of a blob."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.hung_up = False
        self.asked = Asked(
            SimpleNamespace(),  # type: ignore[arg-type]
            "a",
            put=self.waiting.append,
            send=self.waiting.append,
            hang_up=lambda: setattr(self, "hung_up", True),
        )

    async def take(self) -> tuple[str, bytes]:
        async with asyncio.timeout(30):
            while not any(isinstance(item, asyncio.Event) for item in self.waiting):
                await asyncio.sleep(0)
        header, *parts, end = self.waiting
        assert isinstance(header, BlobSent)
        self.waiting.clear()
        end.set()
        return header.digest, b"".join(parts)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of blobs, of which each is as long as three chunks."""
    read: list[str] = []

    def blob_for(_: object, digest: str, *, agent_id: str) -> bytes:
        assert agent_id == "a"
        assert threading.current_thread() is not threading.main_thread()
        read.append(digest)
        return bytes(bytearray(LONG))

    monkeypatch.setattr(asked_by_agents, "blob_for", blob_for)
    return read


def test_blobs_are_read_one_after_the_other_as_the_agent_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it asks for, and whether it reads or not: one of them is in memory."""
    read = reads(monkeypatch)

    async def scene() -> None:
        outbox = Outbox()
        for digest in (CODE, OTHER, OTHER):
            outbox.asked.blob(digest)
        for _ in range(100):
            await asyncio.sleep(0)
        assert read[1:] == []
        assert [await outbox.take() for _ in range(2)] == [(CODE, LONG), (OTHER, LONG)]
        outbox.asked.blob(CODE)  # what it was sent could not be kept
        assert await outbox.take() == (CODE, LONG)
        outbox.asked.close()

    asyncio.run(scene())
    assert read == [CODE, OTHER, CODE]


def test_what_many_agents_are_sent_at_once_is_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads(monkeypatch)

    async def scene() -> None:
        outboxes = [Outbox() for _ in range(3)]
        for outbox in outboxes:
            outbox.asked.blob(CODE)
        async with asyncio.timeout(30):
            while not all(outbox.waiting for outbox in outboxes):
                await asyncio.sleep(0)
        assert len({id(outbox.waiting[1].obj) for outbox in outboxes}) == 1
        for outbox in outboxes:
            outbox.asked.close()

    asyncio.run(scene())


def test_an_agent_that_asks_for_checkpoints_again_and_again_takes_one_thread_and_waits_until_it_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flood of questions took all threads, and its answers the memory of the service."""
    searched: list[str] = []

    def checkpoints_for(_: object, wanted: CheckpointsWanted, *, agent_id: str) -> CheckpointsFound:
        assert threading.current_thread() is not threading.main_thread()
        searched.append(wanted.request_id)
        return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce)

    monkeypatch.setattr(asked_by_agents, "checkpoints_for", checkpoints_for)

    async def scene() -> None:
        outbox = Outbox()
        for number in range(3):
            outbox.asked.checkpoints(replace(CHECKPOINTS, request_id=str(number)))
        for number in range(3):
            async with asyncio.timeout(30):
                while not any(isinstance(item, asyncio.Event) for item in outbox.waiting):
                    await asyncio.sleep(0)
            found, has_left = outbox.waiting
            assert (found.request_id, searched) == (str(number), list("012"[: number + 1]))
            outbox.waiting.clear()
            has_left.set()
        outbox.asked.checkpoints(replace(CHECKPOINTS, request_id="later"))
        async with asyncio.timeout(30):
            while not outbox.waiting:
                await asyncio.sleep(0)
        assert not outbox.hung_up
        outbox.asked.close()

    asyncio.run(scene())


def test_more_searches_than_an_agent_makes_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_by_agents, "SEARCHES_LIMIT", 2)

    async def scene() -> None:
        asked = Outbox().asked
        with pytest.raises(ProtocolError):
            asked.checkpoints(replace(CHECKPOINTS, nonce="n" * 1_000))
        for _ in range(2):
            asked.checkpoints(CHECKPOINTS)
        with pytest.raises(ProtocolError):
            asked.checkpoints(CHECKPOINTS)
        asked.close()

    asyncio.run(scene())


def test_more_blobs_than_an_agent_asks_for_are_not_taken() -> None:
    async def scene() -> None:
        asked = Outbox().asked
        for number in range(WANTED_LIMIT):
            asked.blob(f"{number:064}")
        for digest in ("e" * 64, "e" * 1_000):
            with pytest.raises(ProtocolError):
                asked.blob(digest)
        asked.close()

    asyncio.run(scene())


def test_an_agent_that_offers_more_than_is_taken_at_once_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its offers waited in the memory of the service for those before."""
    monkeypatch.setattr(agents, "UNDER_WAY_LIMIT", 2)
    taken: list[str] = []

    async def take_output(_: object, offered: OutputOffered) -> None:
        taken.append(offered.nonce)
        await asyncio.Event().wait()

    monkeypatch.setattr(agents._Connection, "_take_output", take_output)
    key = AttemptKey(experiment_id="e", number=1, attempt=1)
    agent = Staying(*(OutputOffered(key=key, nonce=nonce, size=0, pieces=()) for nonce in "123"))

    asyncio.run(asyncio.wait_for(agent.talk(a_hello()), 30))

    assert taken == ["1", "2"]
