"""An agent has one event loop for all its trials: what may take long is done beside it, by threads, and in order."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from trials.agent import conversation, launching, removing
from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home
from trials.agent.moving import blobs, joined
from trials.agent.moving.blobs import BlobReceiver
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.node_cache import NodeCache
from trials.agent.moving.storing import StoreThreads
from trials.agent.sharing import servers as module
from trials.agent.sharing.requests import Order, Request
from trials.agent.sharing.servers import FILE_SERVER, FOLDER_DATA, FOLDER_WORK, DataServers
from trials.processes.identity import identity
from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.limits import LOG_INLINE_BYTES
from trials.wire.messages import BlobSent, DeleteCheckpoint, Launch, RemoveExperiment, Stop
from trials.wire.records import ExitCause, ExitRecord

KEY = AttemptKey(experiment_id="exp", number=1, attempt=1)
STOP = Stop(key=KEY, nonce="n1", grace_s=0.0, reason="stopped")
REQUEST = Request(nonce="n", factory="f:f", arguments={}, order=Order(block_size=16), memory_bytes=24 << 20, workers=1)
TURNS = 20
TIMEOUT_S = 60.0  # of what happens soon
SOON_S = 5.0  # for what happens at once; it is waited for in vain only where the test fails


class Beside:
    """Takes the place of what takes long: it does not end before ``may_end``, and not at all on the event loop."""

    def __init__(self, happened: list[str], name: str) -> None:
        self.may_end, self.has_begun = threading.Event(), threading.Event()
        self._happened, self._name, self._loop = happened, name, threading.get_ident()

    def __call__(self, *_: object, **__: object) -> Any:
        self.has_begun.set()
        if threading.get_ident() == self._loop:
            self._happened.append(f"{self._name} on the loop")
        else:
            assert self.may_end.wait(TIMEOUT_S)
            self._happened.append(self._name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    home = Home(tmp_path / "home")
    home.make()
    return home


async def turns() -> None:
    """Everything that does not wait for a thread has its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_an_attempt_is_tidied_by_a_thread_and_its_experiment_removed_after_that(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    tidying = Beside(happened, "tidied")
    monkeypatch.setattr(removing, "tidy", tidying)
    monkeypatch.setattr(home, "remove_experiment", lambda name: happened.append(f"{name} removed"))

    async def scene() -> None:
        agent = Agent(home)
        agent.stop(STOP)
        agent.forget("n1")
        assert home.live() == {}, "no later agent takes it over"
        agent.remove_experiment(RemoveExperiment(experiment_id="exp"))
        await turns()
        assert not agent.is_idle(), "the agent waits for it before it ends"
        tidying.may_end.set()
        await agent.close()

    asyncio.run(scene())

    assert happened == ["tidied", "exp removed"]


def test_a_checkpoint_is_removed_from_the_home_by_a_thread(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another attempt has the same bytes is looked up in all attempts."""
    happened: list[str] = []
    deleting = Beside(happened, "deleted")
    deleting.may_end.set()
    monkeypatch.setattr(home, "remove_checkpoint", deleting)
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    home.put_live("n1", folder)
    order = DeleteCheckpoint(nonce="n1", name="step-3-abcdef.ckpt", location="")

    asyncio.run(removing.delete_checkpoint(home, CheckpointStore(""), order, StoreThreads()))

    assert happened == ["deleted"]


def left_by_a_server(home: Home, key: str = "k") -> Path:
    """Of one that was killed: its code, in which its dataset may have written anything, and the record of it."""
    work = home.agent / FOLDER_DATA / key / FOLDER_WORK
    work.mkdir(parents=True)
    (work / "module.py").touch()
    (work.parent / FILE_SERVER).touch()
    return work.parent


def test_what_a_data_server_leaves_is_removed_by_a_thread_and_the_next_of_it_starts_after_that(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    removing_it = Beside(happened, "removed")
    monkeypatch.setattr(module, "remove_tree", removing_it)

    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path, memory_bytes=1 << 30)
        left_by_a_server(home)
        server: Any = module._Server(key="k", memory_bytes=1, **identity(os.getpid()))
        servers._servers["k"] = server
        servers._ended(server)
        monkeypatch.setattr(servers, "_lay_out", lambda *_, **__: happened.append("laid out"))
        monkeypatch.setattr(servers, "_begun", lambda *_: happened.append("begun") or ends())
        starting = asyncio.ensure_future(servers._start("k", REQUEST, {"spec": {}}))
        await turns()
        removing_it.may_end.set()
        await asyncio.gather(starting, return_exceptions=True)
        await servers.close()

    def ends() -> None:
        raise OSError("that is enough")

    asyncio.run(scene())

    first = happened.index("laid out")
    assert set(happened[:first]) == {"removed"}
    assert happened[first + 1] == "begun"
    assert set(happened[first + 2 :]) == {"removed"}, "and so is what a start that fails has laid out"


def test_the_folder_of_a_data_server_is_laid_out_by_a_thread(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    removing_it = Beside(happened, "removed")
    removing_it.may_end.set()
    monkeypatch.setattr(module, "remove_tree", removing_it)

    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path, memory_bytes=1 << 30)
        monkeypatch.setattr(servers, "_begun", lambda *_: cast("Any", None).ends())
        with pytest.raises(AttributeError):
            await servers._start("k", REQUEST, {"spec": {}})
        await servers.close()

    asyncio.run(scene())

    assert set(happened) == {"removed"}


def test_an_agent_listens_while_threads_remove_what_an_earlier_one_has_left(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    removing_it = Beside(happened, "removed")
    monkeypatch.setattr(module, "remove_tree", removing_it)
    left_by_a_server(home)

    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path)
        servers.open()
        assert servers._path.exists()
        assert happened == []
        removing_it.may_end.set()
        await servers.close()

    asyncio.run(scene())

    assert set(happened) == {"removed"}


def test_the_memory_and_the_logs_of_data_servers_are_looked_at_by_a_thread(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel walks through all pages of a server to count them: of a large one for a second."""
    happened: list[str] = []
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    memory, logs = Beside(happened, "memory"), Beside(happened, "logs")

    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path)
        servers._servers["k"] = module._Server(key="k", memory_bytes=1, **identity(os.getpid()))
        monkeypatch.setattr(servers, "keep_within", memory)
        monkeypatch.setattr(servers, "bound_logs", logs)
        for look in (memory, logs):
            look.may_end.set()
        looking = asyncio.ensure_future(servers._look_now_and_then())
        async with asyncio.timeout(TIMEOUT_S):
            while len(happened) < 2:
                await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(scene())

    assert happened[:2] == ["logs", "memory"]


def test_older_blobs_are_removed_by_a_thread_once_one_has_come(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them are whole folders, fetched from a store."""
    happened: list[str] = []
    removing_it = Beside(happened, "older ones removed")
    monkeypatch.setattr(blobs, "remove_oldest", removing_it)
    data, asked = b"code", asyncio.Event()

    async def ask(_: str) -> None:
        asked.set()

    async def scene() -> None:
        receiver = BlobReceiver(home.incoming, ask=ask)
        getting = asyncio.ensure_future(receiver.get(digest := hashlib.sha256(data).hexdigest()))
        await asked.wait()
        receiver.begin(BlobSent(digest=digest, size=len(data)))
        receiver.feed(data)
        assert (await getting).read_bytes() == data
        happened.append("it is there")
        removing_it.may_end.set()
        await asyncio.gather(*receiver._tasks)

    asyncio.run(scene())

    assert happened == ["it is there", "older ones removed"]


def test_what_a_preparation_that_was_cut_off_has_left_is_removed_by_a_thread(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    removing_it = Beside(happened, "removed")
    removing_it.may_end.set()
    monkeypatch.setattr(launching, "remove_tree", removing_it)
    home.attempt_folder(KEY, "n1").mkdir(parents=True)
    spec = LaunchSpec(command=("true",), parameters={}, seed=1, objective="loss")
    launch = Launch(key=KEY, nonce="n1", lineage="l", spec=spec)

    async def scene() -> None:
        receiver: Any = None
        await launching.prepare(home, launch, receiver, cache=NodeCache(home.assets, in_use=set))

    asyncio.run(scene())

    assert happened == ["removed"]


# ── of a service elsewhere ──────────────────────────────────────────────────────────────────────
def with_long_logs(home: Home) -> Path:
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_bytes(b"x" * (LOG_INLINE_BYTES + 1))
    return folder


def collecting(home: Home) -> Coroutine[Any, Any, object]:
    return joined.collect_long_logs(home, joined._Wrote(with_long_logs(home), "n1"))


def owing(home: Home) -> Coroutine[Any, Any, object]:
    home.owe_logs("n1", with_long_logs(home))
    return joined.send_owed_logs(home, now=(home.agent / "owed" / "n1").stat().st_mtime)


def giving(home: Home) -> Coroutine[Any, Any, object]:
    return joined.fetch_secrets(home, ["token"])


@pytest.mark.parametrize(
    ("what", "work"),
    [("upload", collecting), ("upload", owing), ("fetch", giving)],
    ids=["logs", "owed logs", "secrets"],
)
def test_what_is_sent_to_a_service_that_hangs_or_fetched_from_it_has_a_thread_of_its_own(
    home: Home, monkeypatch: pytest.MonkeyPatch, what: str, work: Callable[[Home], Coroutine[Any, Any, object]]
) -> None:
    """Else a few such trials would keep the agent from all that it does in its threads for the others."""
    happened: list[str] = []
    hanging = Beside(happened, what)
    monkeypatch.setattr(joined, what, hanging)

    async def scene() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        working = asyncio.ensure_future(work(home))
        async with asyncio.timeout(TIMEOUT_S):
            while not hanging.has_begun.is_set():
                await asyncio.sleep(0)
            others = asyncio.ensure_future(asyncio.to_thread(happened.append, "another trial's"))
            await asyncio.wait([others], timeout=SOON_S)
            hanging.may_end.set()
            await asyncio.gather(working, others)

    asyncio.run(scene())

    assert happened == ["another trial's", what]


def test_what_goes_with_the_end_of_an_attempt_is_read_by_a_thread(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    reading = Beside(happened, "read")
    reading.may_end.set()
    for place in (conversation, joined):
        monkeypatch.setattr(place, "short_logs", lambda _: reading() or {"stdout": "", "stderr": ""})
    held = HeldAttempt(with_long_logs(home), key=KEY, nonce="n1", lineage="l")

    async def scene() -> None:
        agent = Agent(home)
        agent.facts.is_joined = True
        talk = conversation.Conversation(agent, cast("Any", None), agent_id="a", on_welcome=lambda _: None)
        await talk._exited(held, ExitRecord(cause=ExitCause.EXITED, code=0), 3)
        await joined.collect_long_logs(home, held)
        await agent.close()

    asyncio.run(scene())

    assert happened == ["read", "read"]
