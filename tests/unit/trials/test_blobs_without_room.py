"""Bytes that cannot be written down as they come: whoever waits for them is told, and what comes next is taken."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.agent.agent import Agent
from trials.agent.home import Home
from trials.agent.moving import blobs as moving_blobs
from trials.agent.moving.blobs import BlobReceiver, ConnectionLostError
from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.messages import BlobSent, Launch

GOOD = b"the weights"
DIGEST = hashlib.sha256(GOOD).hexdigest()
SENT = BlobSent(digest=DIGEST, size=len(GOOD))
SOON_S = 10.0  # for what happens at once, on a machine that is busy
KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
LAUNCH = Launch(
    key=KEY,
    nonce="n1",
    lineage="l",
    spec=LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss", code_digest=DIGEST),
)


class Disk:
    """Whatever is done to the bytes that come fails with ``number`` at one of: open, write, close, replace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails_at, self.number = "", 0
        self._open, self._replace = Path.open, Path.replace

        def opened(path: Path, *how: Any, **named: Any) -> Any:
            return self.open(path, *how, **named)

        def replaced(path: Path, target: Path) -> Path:
            return self.replace(path, target)

        monkeypatch.setattr(Path, "open", opened)
        monkeypatch.setattr(Path, "replace", replaced)

    def reach(self, step: str) -> None:
        if step == self.fails_at:
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: Path, *how: Any, **named: Any) -> Any:
        opening: Any = self._open
        if not path.name.endswith(".part"):
            return opening(path, *how, **named)
        self.reach("open")
        return File(self, opening(path, *how, **named))

    def replace(self, path: Path, target: Path) -> Path:
        self.reach("replace")
        return self._replace(path, target)


class File:
    """What is written finds no room at once, or only when it is closed."""

    def __init__(self, disk: Disk, file: io.BufferedWriter) -> None:
        self._disk, self._file = disk, file

    def write(self, data: bytes) -> None:
        self._disk.reach("write")
        self._file.write(data)

    def close(self) -> None:
        self._file.close()
        self._disk.reach("close")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not holds():
            await asyncio.sleep(0)


def receiver(folder: Path) -> tuple[BlobReceiver, list[str]]:
    asked: list[str] = []

    async def ask(digest: str) -> None:
        asked.append(digest)

    return BlobReceiver(folder, ask=ask), asked


@pytest.mark.parametrize("fails_at", ["open", "write", "close", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_who_waits_is_told_and_can_ask_again(tmp_path: Path, disk: Disk, fails_at: str, number: int) -> None:
    async def ask_twice() -> bytes:
        blobs, asked = receiver(tmp_path)
        disk.fails_at, disk.number = fails_at, number
        first = asyncio.ensure_future(blobs.get(DIGEST))
        await until(lambda: len(asked) == 1)
        blobs.begin(SENT)
        blobs.feed(GOOD[:4])
        blobs.feed(GOOD[4:])
        async with asyncio.timeout(SOON_S):
            with pytest.raises(OSError, match=os.strerror(number)):
                await first
        assert list(tmp_path.iterdir()) == []
        disk.fails_at = ""
        second = asyncio.ensure_future(blobs.get(DIGEST))
        await until(lambda: len(asked) == 2)
        blobs.begin(SENT)
        blobs.feed(GOOD)
        async with asyncio.timeout(SOON_S):
            return (await second).read_bytes()

    assert asyncio.run(ask_twice()) == GOOD


def test_a_file_that_cannot_be_closed_keeps_nobody_waiting_when_the_channel_closes(tmp_path: Path, disk: Disk) -> None:
    other = hashlib.sha256(b"other").hexdigest()

    async def lose() -> list[Path | BaseException]:
        blobs, asked = receiver(tmp_path)
        waiting = [asyncio.ensure_future(blobs.get(digest)) for digest in (DIGEST, other)]
        await until(lambda: len(asked) == 2)
        blobs.begin(SENT)
        blobs.feed(GOOD[:4])
        disk.fails_at, disk.number = "close", errno.ENOSPC
        blobs.lose_connection()
        async with asyncio.timeout(SOON_S):
            return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(found) for found in asyncio.run(lose())] == [ConnectionLostError] * 2


def test_a_blob_is_given_also_where_no_older_one_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(moving_blobs, "remove_oldest", refused)

    async def get() -> bytes:
        blobs, asked = receiver(tmp_path)
        getting = asyncio.ensure_future(blobs.get(DIGEST))
        await until(lambda: len(asked) == 1)
        blobs.begin(SENT)
        blobs.feed(GOOD)
        async with asyncio.timeout(SOON_S):
            return (await getting).read_bytes()

    assert asyncio.run(get()) == GOOD


@pytest.mark.parametrize(
    ("number", "is_repeated"),
    [
        *((number, True) for number in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)),
        (errno.EIO, False),
    ],
)
def test_a_launch_whose_code_cannot_be_written_down_is_left_to_be_repeated_or_fails_with_the_reason(
    tmp_path: Path, disk: Disk, number: int, is_repeated: bool
) -> None:
    home = Home(tmp_path / "home")
    home.make()

    async def launch() -> str | None:
        agent = Agent(home)
        blobs, asked = receiver(home.incoming)
        agent.launch(LAUNCH, blobs)
        await until(lambda: len(asked) == 1)
        disk.fails_at, disk.number = "write", number
        blobs.begin(SENT)
        blobs.feed(GOOD)
        await until(agent.is_idle)
        disk.fails_at = ""
        held = agent.held.get("n1")
        told = None if held is None or held.exit is None else held.exit.tail
        agent.launch(LAUNCH, blobs)
        if held is None:
            await until(lambda: len(asked) == 2)
            blobs.lose_connection()
        await agent.close()
        return told

    told = asyncio.run(launch())
    assert told is None if is_repeated else "Input/output error" in str(told)
