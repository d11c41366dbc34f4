"""What an agent does whatever hangs in a store or on a disk: its other threads all wait for that here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent import threads
from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt
from trials.agent.channel import Channel, Outcome
from trials.agent.home import Home
from trials.agent.moving import restoring
from trials.agent.moving.blobs import BlobReceiver
from trials.agent.moving.node_cache import AssetMissingError
from trials.agent.moving.restoring import lay_out
from trials.agent.threads import Threads, leave
from trials.agent.ways import JoinedWay, ServiceAddress
from trials.wire.attempt import AttemptKey
from trials.wire.launch import CheckpointRef, LaunchSpec
from trials.wire.messages import Launch
from trials.wire.records import ExitCause, ExitRecord, ProcessRecord

SOON_S = 10.0  # for what happens at once, on a machine that is busy
KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
SPEC = LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss")
LAUNCH = Launch(key=KEY, nonce="n1", lineage="l", spec=SPEC)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    home = Home(tmp_path / "home")
    home.make()
    return Agent(home)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What hangs waits for it."""
    goes_on = threading.Event()
    yield goes_on
    goes_on.set()


def run_while_all_hang(work: Callable[[], Awaitable[None]], hanging: threading.Event) -> None:
    async def whole() -> None:
        loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        loop.set_default_executor(pool)
        waiting = loop.run_in_executor(None, hanging.wait)
        try:
            async with asyncio.timeout(SOON_S):
                await work()
        finally:
            hanging.set()
            await waiting

    asyncio.run(whole())


def test_the_service_is_reached(agent: Agent, hanging: threading.Event, tmp_path: Path) -> None:
    tried: list[ServiceAddress] = []

    class Away(JoinedWay):
        def opened(self, address: ServiceAddress) -> Any:
            tried.append(address)
            raise ConnectionRefusedError

    (tmp_path / "token").write_text("t")
    way = Away(("http://127.0.0.1:1",), token_file=tmp_path / "token")

    async def work() -> None:
        channel = Channel(agent, way=way, agent_id="a", idle_exit_s=1.0)
        assert await channel._converse(way.address() or ServiceAddress(url="")) is Outcome.FAILED

    run_while_all_hang(work, hanging)
    assert len(tried) == 1


def test_a_trial_without_a_parent_is_ended_and_its_end_recorded(agent: Agent, hanging: threading.Event) -> None:
    folder = agent.home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    held = HeldAttempt(folder, key=KEY, nonce="n1", lineage="l")
    held.supervisor = ProcessRecord(boot_id="another", pid=1, start_time=1)

    run_while_all_hang(lambda: agent._record_loss(held), hanging)

    assert isinstance(held.exit, ExitRecord)
    assert held.exit.cause is ExitCause.HOST_REBOOTED


def test_an_agent_that_leaves_does_not_wait_for_what_hangs(
    hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(threads, "LEAVE_S", 0.0)
    monkeypatch.setattr(os, "_exit", ends.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    pool, idle = Threads(1), Threads(1)
    idle.submit(int).result()
    pool.submit(hanging.wait)

    leave(3, pool, idle)
    assert ends == [3]


def test_an_agent_whose_threads_have_ended_ends_as_any_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda _: pytest.fail("it ended here"))
    pool = Threads(1)
    pool.submit(int).result()

    assert leave(3, pool) == 3


def test_an_agent_that_leaves_does_not_wait_for_a_launch_that_hangs_and_stops_none(
    agent: Agent, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.agent.agent.LEAVE_S", 0.0)
    agent.home.attempt_folder(KEY, "n1").mkdir(parents=True)

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        monkeypatch.setattr(agent, "_launch", never)
        agent.launch(LAUNCH, BlobReceiver(agent.home.incoming, ask=never))
        await asyncio.sleep(0)
        await agent.close()
        (task,) = agent._tasks
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_while_all_hang(work, hanging)
    assert agent.held == {}


# ── what goes to a store ────────────────────────────────────────────────────────────────────────
WEIGHTS = b"weights"
REFERENCE = CheckpointRef(digest=hashlib.sha256(WEIGHTS).hexdigest(), step=1, size=len(WEIGHTS), path="/mnt/store/x")


def test_a_checkpoint_is_laid_out_and_an_asset_looked_for_while_others_hang(
    agent: Agent, hanging: threading.Event, tmp_path: Path
) -> None:
    kept = agent.home.attempts / "e" / "1" / "1-n1" / "checkpoints" / f"s1-{REFERENCE.digest[:12]}.ckpt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(WEIGHTS)
    target = agent.home.attempts / "e" / "1" / "2-n2" / "restore"
    target.parent.mkdir(parents=True)

    async def unasked(digest: str) -> None:
        raise AssertionError(digest)

    async def work() -> None:
        await lay_out(agent.home, target, [REFERENCE], BlobReceiver(agent.home.incoming, ask=unasked))
        with pytest.raises(AssetMissingError):
            await agent.cache.get("a" * 64)

    run_while_all_hang(work, hanging)

    assert [path.read_bytes() for path in target.glob("*.ckpt")] == [WEIGHTS]


def test_stores_that_hang_leave_the_loops_own_threads_to_others(
    agent: Agent, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[None] = []

    def hang(*_: Any) -> None:
        begun.append(None)
        hanging.wait()

    monkeypatch.setattr(restoring, "_from_store", hang)
    blobs: Any = SimpleNamespace(make_room=lambda: None)

    async def scene() -> None:
        waiting = []
        for number in range(40):  # more than a loop has of its own
            reference = replace(REFERENCE, digest=f"{number:064x}", path="s3://bucket/x")
            fetching = restoring._fetched(agent.home, blobs, reference, restoring._Found())
            waiting.append(asyncio.ensure_future(fetching))
        async with asyncio.timeout(SOON_S):
            while len(begun) < len(waiting):
                await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: "soon") == "soon"
        for one in waiting:
            one.cancel()

    asyncio.run(scene())
