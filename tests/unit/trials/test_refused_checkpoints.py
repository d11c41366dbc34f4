"""A checkpoint that the service does not keep is offered once: whoever waits behind it, an end say, is not kept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.home import Home
from trials.agent.moving import offers
from trials.agent.moving.offers import CheckpointOffers
from trials.wire.limits import NOT_KEPT
from trials.wire.messages import BlobStored, Message
from trials.wire.records import CheckpointRecord

RECORD = CheckpointRecord(step=1, name="step-1", digest="a" * 64, size=3, at=1.0)


@pytest.mark.parametrize(
    ("error", "times"),
    [(f"agent 'first' has no attempt that goes on; {NOT_KEPT}", 1), ("the disk is full", offers.STORE_ATTEMPTS)],
)
def test_what_is_not_kept_is_offered_once_and_what_may_pass_again(
    error: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[Message] = []

    async def ask() -> bool:
        async def send(announcement: Message, data: bytes, *, chunk: int) -> None:
            offered.append(announcement)
            asyncio.get_running_loop().call_soon(made.stored, BlobStored(digest=RECORD.digest, error=error))

        async def at_once(_: float) -> None:
            return None

        def unsent(message: Message) -> Any:
            raise AssertionError(message)

        made = CheckpointOffers(Home(tmp_path), send=unsent, send_blob=send)
        names = ("get_running_loop", "timeout", "shield")
        calls = {name: getattr(asyncio, name) for name in names}
        monkeypatch.setattr(offers, "asyncio", SimpleNamespace(sleep=at_once, **calls))
        return await made._store(b"abc", RECORD)

    assert asyncio.run(ask()) is False
    assert len(offered) == times
