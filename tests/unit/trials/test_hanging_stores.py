"""A checkpoint store that hangs: reports wait for it no longer than for a slow one, and it is asked seldom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trials import stores
from trials.agent import removing
from trials.agent.home import Home
from trials.agent.moving import storing
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.offers import CheckpointOffers
from trials.agent.moving.storing import LEFT_ALONE_S, SILENT_S, SLOWEST_BYTES_S, StoreHangsError, StoreThreads
from trials.wire.records import CheckpointRecord

NFS = "/mnt/nfs"
LONGEST_S = 30.0  # for a thread that should have been told to end long before


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(storing, "LOOK_S", 0.001)
    return Clock()


@contextmanager
def a_gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    try:
        yield gate
    finally:
        gate.set()


async def begun(threads: StoreThreads, gate: threading.Event, *, size: int = 0) -> asyncio.Future[Any]:
    """Work that hangs until the gate is open."""
    has_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(_: Callable[[], None]) -> str:
        loop.call_soon_threadsafe(has_begun.set)
        gate.wait(LONGEST_S)
        return "done"

    hanging = asyncio.ensure_future(threads.run(hang, root=NFS, size=size))
    await has_begun.wait()
    return hanging


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), LONGEST_S))


def at_once(what: str) -> Callable[[Callable[[], None]], str]:
    return lambda _: what


def test_what_does_not_answer_is_given_up_and_left_alone_for_a_while(clock: Clock) -> None:
    async def scene() -> None:
        threads = StoreThreads(clock)
        with a_gate() as gate:
            hanging = await begun(threads, gate)
            clock.at += SILENT_S - 1
            assert await threads.run(at_once("slow"), root=NFS) == "slow"
            clock.at += 1
            with pytest.raises(StoreHangsError, match="has not answered for 300 s"):
                await hanging

            with pytest.raises(StoreHangsError, match="left alone for another 600 s"):
                await threads.run(at_once("refused"), root=NFS)
            assert await threads.run(at_once("other"), root="s3://bucket") == "other"
            clock.at += LEFT_ALONE_S
            assert await threads.run(at_once("again"), root=NFS) == "again"

    run(scene)


def test_each_that_hangs_lets_the_next_wait_for_longer_and_one_that_returns_ends_that(clock: Clock) -> None:
    async def scene() -> None:
        threads = StoreThreads(clock)
        with a_gate() as first, a_gate() as second:
            one = await begun(threads, first)
            clock.at += SILENT_S + LEFT_ALONE_S
            with pytest.raises(StoreHangsError):
                await one
            other = await begun(threads, second)
            clock.at += SILENT_S
            with pytest.raises(StoreHangsError):
                await other
            clock.at += LEFT_ALONE_S
            with pytest.raises(StoreHangsError, match="another 600 s"):
                await threads.run(at_once("refused"), root=NFS)
        while threads._under_way:
            await asyncio.sleep(0)
        assert await threads.run(at_once("answered"), root=NFS) == "answered"

    run(scene)


def test_a_large_one_has_time_for_its_bytes_and_one_whose_bytes_move_has_all(clock: Clock) -> None:
    async def scene() -> None:
        threads = StoreThreads(clock)
        with a_gate() as gate:
            hanging = await begun(threads, gate, size=int(100 * SLOWEST_BYTES_S))
            clock.at += SILENT_S + 99
            assert await threads.run(at_once("slow"), root=NFS) == "slow"
            clock.at += 1
            with pytest.raises(StoreHangsError):
                await hanging

        def slowly(moved: Callable[[], None]) -> str:
            for _ in range(10):
                clock.at += SILENT_S - 1
                moved()
            return "whole"

        assert await threads.run(slowly, root="s3://bucket") == "whole"

    run(scene)


def test_a_connection_that_is_lost_meanwhile_does_not_hide_that_it_hangs(clock: Clock) -> None:
    async def scene() -> None:
        threads = StoreThreads(clock)
        with a_gate() as gate:
            hanging = await begun(threads, gate)
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)
            clock.at += SILENT_S
            with pytest.raises(StoreHangsError):
                await threads.run(at_once("refused"), root=NFS)

    run(scene)


def test_errors_are_those_of_the_work(clock: Clock) -> None:
    def fail(_: Callable[[], None]) -> str:
        raise StoreHangsError("of its own")

    with pytest.raises(StoreHangsError, match="of its own"):
        asyncio.run(StoreThreads(clock).run(fail, root=NFS))


def test_reports_go_without_what_a_store_that_hangs_does_not_take(tmp_path: Path) -> None:
    tries: list[tuple[str, int]] = []

    class Hanging(StoreThreads):
        async def run(self, work: Any, *, root: str, size: int = 0) -> Any:
            tries.append((root, size))
            raise StoreHangsError(f"store: {root}: it has not answered")

    async def unsent(*_: Any, **__: Any) -> None:
        raise AssertionError

    async def scene() -> str | None:
        offers = CheckpointOffers(Home(tmp_path), send=unsent, send_blob=unsent, threads=Hanging())
        offers.store = CheckpointStore(NFS)
        record = CheckpointRecord(step=1, name="s1-abc.ckpt", digest="a" * 64, size=1 << 30, at=1.0)
        return await offers._put(tmp_path, "e/1/1-n/s1-abc.ckpt", record)

    assert asyncio.run(scene()) is None
    assert tries == [(NFS, 1 << 30)]


@pytest.mark.parametrize(("hangs", "tries", "is_there"), [(0, 1, False), (2, 3, False), (9, 4, True)])
def test_what_is_to_be_removed_from_a_store_that_hangs_is_removed_once_it_answers(
    hangs: int, tries: int, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removing, "HANGING_PAUSE_S", 0)
    monkeypatch.setattr(removing, "HANGING_TRIES", 4)
    asked: list[str] = []

    class Hanging(StoreThreads):
        async def run(self, work: Any, *, root: str, size: int = 0) -> Any:
            asked.append(root)
            if len(asked) <= hangs:
                raise StoreHangsError("it does not answer")
            return work(lambda: None)

    store, place = CheckpointStore(str(tmp_path)), tmp_path / "e" / "x"
    place.parent.mkdir()
    place.touch()

    asyncio.run(removing.remove_from(store, str(place), Hanging()))

    assert (asked, place.exists()) == ([str(tmp_path)] * tries, is_there)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_put_says_that_bytes_move(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="comes with torch")
    monkeypatch.setattr(stores, "COPY_BYTES", 1_000)
    monkeypatch.setattr(stores, "clone", lambda *_: False)
    source, said = tmp_path / "source", list[None]()
    source.write_bytes(b"x" * 10_000)
    root = str(tmp_path / "store") if kind == "folder" else f"memory://{tmp_path.name}"

    CheckpointStore(root).put(source, "e/1/1-n/name.ckpt", moved=lambda: said.append(None))

    assert len(said) >= (10 if kind == "folder" else 2)
    fsspec.filesystem("memory").rm("/", recursive=True)
