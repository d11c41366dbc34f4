"""A shared data server that cannot be started, or not be kept, leaves nothing behind: no process, no descriptor."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trials.agent.home import Home
from trials.agent.sharing import servers as module
from trials.agent.sharing.requests import NotServedError, Order, Request
from trials.agent.sharing.servers import FOLDER_DATA, DataServers
from trials.agent.supervision.starting import LaunchFailedError
from trials.processes.detached import EndWatch
from trials.tasks import nodes
from trials.tasks.nodes import LocalNode
from trials.wire.log_files import LOG_BYTES

REQUEST = Request(nonce="n", factory="f:f", arguments={}, order=Order(block_size=16), memory_bytes=24 << 20, workers=1)
ATTEMPT = {"spec": {}, "local": {}, "nonce": "n"}
NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_PROCESS = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class Child:
    """Takes the place of a process that was started; by its number it is this one."""

    pid = os.getpid()

    def __init__(self) -> None:
        self.happened: list[str] = []

    def kill(self) -> None:
        self.happened.append("killed")

    def wait(self) -> int:
        self.happened.append("reaped")
        return -9


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(module, "send_verified", raising(AssertionError("it is this process")))
    found = Home(tmp_path / "home")
    found.make()
    return found


def raising(error: Exception) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def start(home: Home) -> None:
    """As for the first trial that asks."""

    async def ask() -> None:
        servers = DataServers(home, lambda _: home.path, memory_bytes=1 << 30)
        before = descriptors()
        try:
            await servers._start("k", REQUEST, ATTEMPT)
        finally:
            assert descriptors() == before
            assert servers.reserved_bytes() == 0
            await servers.close()

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("error", "told"), [(NO_PROCESS, OSError), (LaunchFailedError("no such secret"), NotServedError)]
)
def test_one_that_cannot_be_started_leaves_no_descriptor(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: Exception, told: type[Exception]
) -> None:
    monkeypatch.setattr(module, "_spawn", raising(error))

    with pytest.raises(told, match=str(error)[-20:]):
        start(home)


def test_one_that_cannot_be_written_down_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    monkeypatch.setattr(module, "_spawn", lambda *_: child)
    monkeypatch.setattr(module, "write_atomically", raising(NO_ROOM))

    with pytest.raises(OSError, match="No space left"):
        start(home)

    assert child.happened == ["killed", "reaped"]


def test_one_whose_end_cannot_be_watched_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    monkeypatch.setattr(module, "_spawn", lambda *_: child)
    monkeypatch.setattr(EndWatch, "add", lambda *_, **__: False)

    with pytest.raises(OSError, match="cannot be watched"):
        start(home)

    assert child.happened == ["killed", "reaped"]


def test_servers_that_start_at_once_are_granted_no_more_together_than_there_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[int] = []

    async def ask() -> None:
        servers = DataServers(home, lambda _: home.path, memory_bytes=40 << 20)

        def begun(key: str, _: Request, attempt: object, memory: int) -> None:
            granted.append(memory)
            servers._servers[key] = cast("Any", SimpleNamespace(memory_bytes=memory))
            raise NO_ROOM

        monkeypatch.setattr(servers, "_begun", begun)
        starts = (servers._start(key, REQUEST, ATTEMPT) for key in "abc")
        errors = await asyncio.gather(*starts, return_exceptions=True)
        assert [type(error) for error in errors].count(NotServedError) == 1
        await servers.close()
        assert len(list((home.agent / FOLDER_DATA).iterdir())) == 0

    asyncio.run(ask())

    assert granted == [24 << 20, 16 << 20]


def test_a_runner_of_tasks_that_cannot_be_started_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    monkeypatch.setattr(nodes, "spawn_runner", raising(NO_PROCESS))
    with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)):
        LocalNode(tmp_path, environment=os.environ)
    assert descriptors() == before

    pipe2 = os.pipe2

    def last(flags: int) -> tuple[int, int]:
        monkeypatch.setattr(os, "pipe2", raising(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
        return pipe2(flags)

    monkeypatch.setattr(os, "pipe2", last)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        LocalNode(tmp_path, environment=os.environ)
    assert descriptors() == before


def test_the_log_of_a_server_is_bounded(home: Home) -> None:
    async def look() -> None:
        servers = DataServers(home, lambda _: home.path)
        folder = servers._folder / "k"
        folder.mkdir(parents=True)
        servers._servers["k"] = cast("Any", None)
        with (folder / "server.log").open("ab") as file:
            for _ in range(3):
                file.truncate(LOG_BYTES)  # of nothing
                servers.bound_logs()
        found = {path.name: path.stat().st_size for path in folder.iterdir()}
        assert found == {"server.log": 0, "server.log.1": LOG_BYTES}

    asyncio.run(look())
