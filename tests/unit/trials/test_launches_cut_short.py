"""Launches that are stopped before they begin, and those that this moment is no good one for."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from trials.agent import attempts
from trials.agent.agent import Agent
from trials.agent.home import Home
from trials.agent.moving.blobs import BlobReceiver
from trials.processes.identity import identity
from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.messages import Launch, Stop
from trials.wire.records import ExitCause, ProcessRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
SPEC = LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss")
LAUNCH = Launch(key=KEY, nonce="n1", lineage="l", spec=SPEC)
STOP = Stop(key=KEY, nonce="n1", grace_s=30.0, reason="by_user")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


async def ask(_: str) -> None:
    """There is no service here."""


async def launched(agent: Agent) -> None:
    agent.launch(LAUNCH, BlobReceiver(agent.home.incoming, ask=ask))


async def settled(agent: Agent) -> None:
    while agent._tasks:
        await asyncio.gather(*agent._tasks, return_exceptions=True)


def test_a_stop_that_comes_with_its_launch_in_one_frame_ends_the_attempt(home: Home) -> None:
    """Before, nothing had begun that could have noticed it, and the service had to order it again after its grace."""

    async def work() -> None:
        agent = Agent(home)
        await launched(agent)
        agent.stop(STOP)
        await settled(agent)
        ended = agent.held["n1"].exit
        assert ended is not None
        assert (ended.cause, agent._launching) == (ExitCause.STOPPED, {})
        await agent.close()

    asyncio.run(work())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT])
def test_a_launch_for_which_nothing_can_be_started_now_has_not_failed(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The service orders it again."""

    async def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    async def work() -> None:
        agent = Agent(home)
        monkeypatch.setattr(agent._forks, "place", refused)
        await launched(agent)
        await settled(agent)
        assert (agent.held, agent._launching) == ({}, {})
        await agent.close()

    asyncio.run(work())


def test_a_launch_that_meets_what_nobody_has_foreseen_has_failed_and_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by chance")

    async def work() -> None:
        agent = Agent(home)
        monkeypatch.setattr(agent._forks, "place", refused)
        await launched(agent)
        await settled(agent)
        ended = agent.held["n1"].exit
        assert ended is not None
        assert (ended.cause, "ZeroDivisionError('by chance')" in ended.tail) == (ExitCause.LAUNCH_FAILED, True)
        await agent.close()

    asyncio.run(work())


def test_what_was_never_started_is_in_the_index_of_attempts_until_it_is_forgotten(home: Home) -> None:
    async def work() -> None:
        agent = Agent(home)
        agent.stop(STOP)
        assert home.live() == {"n1": home.attempt_folder(KEY, "n1")}
        agent.forget("n1")
        assert home.live() == {}
        await agent.close()

    asyncio.run(work())


def test_a_parent_that_somebody_has_stopped_is_continued_to_follow_an_order_to_stop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    async def work() -> None:
        agent = Agent(home)
        monkeypatch.setattr(agent._forks, "place", placed)
        monkeypatch.setattr(agent._forks, "has_given", lambda _: True)
        await launched(agent)
        await settled(agent)
        held = agent.held["n1"]
        held.supervisor = ProcessRecord(**identity(os.getpid()))
        monkeypatch.setattr(attempts, "send_verified", lambda number, _: sent.append(number))
        agent.stop(STOP)
        assert sent == [signal.SIGUSR1, signal.SIGCONT]
        await agent.close()

    async def placed(*_: object, **__: object) -> None:
        """A fork server has the order."""

    asyncio.run(work())
