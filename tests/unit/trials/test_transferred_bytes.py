"""What comes over a wire or lies in a file is used only where it is what its digest says."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trials.agent.home import Home
from trials.agent.moving.blobs import BlobMissingError, BlobReceiver, ConnectionLostError
from trials.agent.moving.offers import CheckpointOffers, _intact
from trials.agent.moving.restoring import verified
from trials.wire.files import FOLDER_CHECKPOINTS
from trials.wire.messages import BlobSent, BlobStored, Message
from trials.wire.records import CheckpointRecord

GOOD, BAD = b"the weights", b"the w3ights"  # of one size: nothing but the digest tells them apart
SOON_S = 10.0  # for what happens at once, on a machine that is busy
DIGEST = hashlib.sha256(GOOD).hexdigest()


async def received(folder: Path, *pieces: bytes) -> bytes:
    """What the receiver gives for DIGEST, where the service sends these pieces."""
    asked: list[str] = []

    async def ask(digest: str) -> None:
        asked.append(digest)

    blobs = BlobReceiver(folder, ask=ask)
    getting = asyncio.ensure_future(blobs.get(DIGEST))
    await _until(lambda: asked == [DIGEST])
    blobs.begin(BlobSent(digest=DIGEST, size=len(GOOD)))
    for piece in pieces:
        blobs.feed(piece)
    return (await getting).read_bytes()


def test_a_blob_is_there_when_all_of_it_has_come(tmp_path: Path) -> None:
    assert asyncio.run(received(tmp_path, GOOD[:4], GOOD[4:])) == GOOD


@pytest.mark.parametrize("pieces", [(BAD,), (GOOD[:4], BAD[4:]), (GOOD[4:], GOOD[:4]), (GOOD + b"!",)])
def test_other_bytes_than_those_of_its_digest_are_no_blob_and_leave_nothing(
    tmp_path: Path, pieces: tuple[bytes, ...]
) -> None:
    with pytest.raises(BlobMissingError, match="has another digest"):
        asyncio.run(received(tmp_path, *pieces))
    assert list(tmp_path.iterdir()) == []


def test_a_blob_comes_also_where_whoever_wanted_it_first_was_stopped_before_it_was_asked_for(tmp_path: Path) -> None:
    async def stop_the_first() -> bytes:
        may_ask, asked = asyncio.Event(), list[str]()

        async def ask(digest: str) -> None:
            await may_ask.wait()
            asked.append(digest)

        blobs = BlobReceiver(tmp_path, ask=ask)
        first, second = asyncio.ensure_future(blobs.get(DIGEST)), asyncio.ensure_future(blobs.get(DIGEST))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        may_ask.set()
        third = asyncio.ensure_future(blobs.get(DIGEST))
        await _until(lambda: asked == [DIGEST])
        blobs.begin(BlobSent(digest=DIGEST, size=len(GOOD)))
        blobs.feed(GOOD)
        assert await second == await third
        return (await third).read_bytes()

    assert asyncio.run(stop_the_first()) == GOOD


@pytest.mark.parametrize("is_told", [True, False])
def test_nobody_waits_for_a_blob_on_a_channel_that_has_closed(tmp_path: Path, is_told: bool) -> None:
    async def get_twice() -> list[Path | BaseException]:
        async def ask(digest: str) -> None:
            raise RuntimeError("the channel is closed")

        blobs = BlobReceiver(tmp_path, ask=ask)
        if is_told:
            blobs.lose_connection()
        async with asyncio.timeout(SOON_S):
            return await asyncio.gather(blobs.get(DIGEST), blobs.get(DIGEST), return_exceptions=True)

    assert [type(found) for found in asyncio.run(get_twice())] == [ConnectionLostError] * 2


def test_a_checkpoint_of_two_attempts_is_stored_also_where_the_first_is_forgotten_meanwhile(tmp_path: Path) -> None:
    record = CheckpointRecord(step=1, name="1.ckpt", size=len(GOOD), digest=DIGEST, at=0.0)

    async def forget_the_first() -> bool:
        may_send, sent = asyncio.Event(), list[bytes]()

        async def send_blob(announcement: Message, data: bytes, *, chunk: int) -> None:
            await may_send.wait()
            sent.append(data)

        async def send(*messages: Message) -> None:
            raise AssertionError(messages)

        offers = CheckpointOffers(Home(tmp_path), send=send, send_blob=send_blob)
        first, second = (asyncio.ensure_future(offers._store(GOOD, record)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        may_send.set()
        await _until(lambda: sent == [GOOD])
        offers.stored(BlobStored(digest=DIGEST, error=None))
        return await second

    assert asyncio.run(forget_the_first())


def test_a_checkpoint_that_is_saved_again_is_offered_again_and_one_that_is_reported_again_is_not(
    tmp_path: Path,
) -> None:
    """Its first row may have been dropped meanwhile, and the bytes with it."""
    home = Home(tmp_path)
    held = SimpleNamespace(nonce="n1", folder=home.attempts / "exp" / "1" / "1-n1")
    (held.folder / FOLDER_CHECKPOINTS).mkdir(parents=True)
    (held.folder / FOLDER_CHECKPOINTS / "1.ckpt").write_bytes(GOOD)
    first = CheckpointRecord(step=1, name="1.ckpt", size=len(GOOD), digest=DIGEST, at=1.0)

    async def offered(*records: CheckpointRecord) -> int:
        sent = list[bytes]()

        async def send_blob(announcement: Message, data: bytes, *, chunk: int) -> None:
            sent.append(data)
            offers.stored(BlobStored(digest=DIGEST, error=None))

        async def send(*messages: Message) -> None:
            raise AssertionError(messages)

        offers = CheckpointOffers(home, send=send, send_blob=send_blob)
        for record in records:
            await offers._offer(held, record)  # type: ignore[arg-type]  # what it looks at
        return len(sent)

    assert asyncio.run(offered(first, first)) == 1
    assert asyncio.run(offered(first, replace(first, at=2.0))) == 2


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():
            await asyncio.sleep(0)


def test_a_checkpoint_is_restored_from_bytes_of_its_digest_only(tmp_path: Path) -> None:
    file = tmp_path / "1.ckpt"
    file.write_bytes(GOOD)
    assert verified(file, DIGEST)
    file.write_bytes(BAD)
    assert not verified(file, DIGEST)


def test_a_checkpoint_that_was_changed_since_it_was_saved_is_not_offered(tmp_path: Path) -> None:
    file = tmp_path / "1.ckpt"
    file.write_bytes(GOOD)
    record = CheckpointRecord(step=1, name=file.name, size=len(GOOD), digest=DIGEST, at=0.0)
    assert _intact(file, record) == GOOD
    for other in (BAD, GOOD + b"!", GOOD[:-1]):
        file.write_bytes(other)
        assert _intact(file, record) is None
