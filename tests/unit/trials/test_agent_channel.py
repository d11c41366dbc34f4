"""How an agent looks for its service."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent import channel as channel_module
from trials.agent.channel import Channel, Outcome
from trials.agent.conversation import Conversation
from trials.agent.home import Home
from trials.agent.ways import HomeWay, JoinedWay, ServiceAddress
from trials.wire.encoding import encode
from trials.wire.messages import Forget


class NoService:
    """Somebody called, and has gone again. Who asks a hundred times does nothing else."""

    is_joined = False

    def __init__(self) -> None:
        self.looks = 0

    def address(self) -> None:
        self.looks += 1
        assert self.looks < 100, "it looks for the service without a pause"


def test_a_service_that_called_and_has_gone_is_waited_for_without_a_busy_loop(tmp_path: Path) -> None:
    home, way = Home(tmp_path), NoService()
    home.agent.mkdir(parents=True, exist_ok=True)
    agent: Any = SimpleNamespace(home=home, is_idle=lambda: False)

    async def scene() -> None:
        channel = Channel(agent, way=way, agent_id="local", idle_exit_s=math.inf)  # type: ignore[arg-type]
        running = asyncio.ensure_future(channel.run())
        await asyncio.sleep(0)
        channel.connect_now()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not running.done()
        running.cancel()

    asyncio.run(scene())
    assert way.looks == 2


def test_a_service_that_is_on_its_way_is_waited_for_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database may take long to open: what ended meanwhile would be started a second time."""
    monkeypatch.setattr(channel_module, "SERVICE_POLL_S", 0)
    home, coming = Home(tmp_path), [True] * 50
    home.agent.mkdir(parents=True, exist_ok=True)
    agent: Any = SimpleNamespace(home=home, is_idle=lambda: True)
    way: Any = SimpleNamespace(is_told=True, address=lambda: None, is_coming=lambda: bool(coming and coming.pop()))

    assert asyncio.run(Channel(agent, way=way, agent_id="local", idle_exit_s=0.0).run()) is False
    assert coming == []


def test_a_service_is_on_its_way_while_it_is_the_parent_of_its_agent(tmp_path: Path) -> None:
    assert HomeWay(Home(tmp_path), starter=os.getppid()).is_coming()
    assert not HomeWay(Home(tmp_path), starter=os.getpid()).is_coming(), "another process is: the starter has ended"
    assert not HomeWay(Home(tmp_path)).is_coming()
    assert not JoinedWay((), token_file=tmp_path / "token").is_coming()


@pytest.mark.parametrize(
    ("named", "ends"),
    [
        ([None, ServiceAddress(url="http://h:1", pid=1, stamp=(9, 9))], False),
        ([None, ServiceAddress(url="http://h:2", pid=2)], True),
    ],
    ids=["of the same service, written anew", "of another service"],
)
def test_a_connection_ends_when_the_home_names_another_service(
    named: list[ServiceAddress | None], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before may hang, and hold its end for as long as its process is there."""
    monkeypatch.setattr(channel_module, "FOLLOW_POLL_S", 0)
    told, aborted = list(named), list[bool]()
    way: Any = SimpleNamespace(is_joined=False, is_told=True, address=lambda: told.pop(0) if len(told) > 1 else told[0])
    connection: Any = SimpleNamespace(transport=SimpleNamespace(abort=lambda: aborted.append(True)))
    agent: Any = SimpleNamespace(home=Home(tmp_path))

    async def scene() -> bool:
        channel = Channel(agent, way=way, agent_id="local", idle_exit_s=math.inf)
        following = asyncio.ensure_future(channel._follow(connection, ServiceAddress(url="http://h:1", pid=1)))
        for _ in range(20):
            await asyncio.sleep(0)
        is_done = following.done()
        following.cancel()
        return is_done

    assert asyncio.run(scene()) is ends
    assert aborted == [True] * ends


def connecting(error: Exception, given: dict[str, Any]) -> type:
    """In place of the library's: it fails so, and notes what it was ``given``."""

    class Connecting:
        def __init__(self, uri: str, **options: Any) -> None:
            given.update(options)

        async def __aenter__(self) -> None:
            raise error

        async def __aexit__(self, *_: object) -> None: ...

    return Connecting


def conversed(tmp_path: Path) -> Outcome:
    way: Any = SimpleNamespace(tls=lambda _: None, opened=lambda _: None, token=lambda: "t")
    agent: Any = SimpleNamespace(home=Home(tmp_path))
    channel = Channel(agent, way=way, agent_id="local", idle_exit_s=math.inf)
    return asyncio.run(channel._converse(ServiceAddress(url="http://h:1", pid=1)))


def test_a_message_of_the_service_may_be_as_long_as_the_page_of_the_protocol_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library closes a connection at a megabyte, where it is told nothing."""
    given = dict[str, Any]()
    monkeypatch.setattr(channel_module, "_ConnectHere", connecting(OSError("nobody is there"), given))

    conversed(tmp_path)

    assert given["max_size"] == 64 << 20


def test_whatever_a_connection_fails_with_is_no_end_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_ConnectHere", connecting(RecursionError("too deep"), {}))

    assert conversed(tmp_path) is Outcome.FAILED


def test_whatever_a_message_fails_with_is_no_end_of_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All trials of the node are told of there."""

    def forget(_: str) -> None:
        raise RecursionError("too deep")

    agent: Any = SimpleNamespace(home=Home(tmp_path), held={}, storing=None, forget=forget)

    async def scene() -> None:
        conversation = Conversation(agent, SimpleNamespace(), agent_id="a", on_welcome=lambda _: None)  # type: ignore[arg-type]
        await conversation._receive(encode(Forget(nonce="n")))

    asyncio.run(scene())
    assert "message_not_followed" in caplog.text
