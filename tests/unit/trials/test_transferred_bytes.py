"""What comes over a wire or lies in a file is used only where it is what its digest says."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from trials.agent.moving.blobs import BlobMissingError, BlobReceiver
from trials.agent.moving.offers import _intact
from trials.agent.moving.restoring import verified
from trials.wire.messages import BlobSent
from trials.wire.records import CheckpointRecord

GOOD, BAD = b"the weights", b"the w3ights"  # of one size: nothing but the digest tells them apart
DIGEST = hashlib.sha256(GOOD).hexdigest()


async def received(folder: Path, *pieces: bytes) -> bytes:
    """What the receiver gives for DIGEST, where the service sends these pieces."""
    asked: list[str] = []

    async def ask(digest: str) -> None:
        asked.append(digest)

    blobs = BlobReceiver(folder, ask=ask)
    getting = asyncio.ensure_future(blobs.get(DIGEST))
    await asyncio.sleep(0)
    assert asked == [DIGEST]
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
