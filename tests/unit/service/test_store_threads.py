"""Threads that ask an asset store: bounded, and told to who comes when they are all taken."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tuner_service.domain.errors import UnavailableError
from tuner_service.service.assets.store_threads import THREADS, WAITING_LIMIT, StoreThreads


class SlowStore:
    """Answers once ``gate`` is open."""

    def __init__(self) -> None:
        self.gate, self.asked = threading.Event(), 0

    def answer(self) -> str:
        self.asked += 1
        assert self.gate.wait(60)
        return "bytes"


def test_who_comes_when_too_many_wait_is_told_to_try_again_and_what_has_begun_goes_on() -> None:
    async def scene() -> None:
        taken = [asyncio.ensure_future(threads.run(store.answer)) for _ in range(THREADS + WAITING_LIMIT)]
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match=f"^{WAITING_LIMIT} requests wait for the asset store already"):
            await threads.run(store.answer)
        next_block = asyncio.ensure_future(threads.go_on(store.answer))
        store.gate.set()
        assert await asyncio.gather(*taken, next_block) == ["bytes"] * (THREADS + WAITING_LIMIT + 1)
        assert await threads.run(store.answer) == "bytes"

    store, threads = SlowStore(), StoreThreads()
    asyncio.run(scene())


def test_one_that_waits_and_goes_away_gives_its_place_and_one_that_hangs_keeps_its_own() -> None:
    async def scene() -> None:
        taken = [asyncio.ensure_future(threads.run(store.answer)) for _ in range(THREADS + WAITING_LIMIT)]
        while store.asked < THREADS:
            await asyncio.sleep(0)
        taken[0].cancel()
        await asyncio.wait(taken[:1])
        with pytest.raises(UnavailableError):
            await threads.run(store.answer)
        taken[-1].cancel()
        await asyncio.wait(taken[-1:])
        taken.append(asyncio.ensure_future(threads.run(store.answer)))
        await asyncio.sleep(0)
        assert not taken[-1].done()
        store.gate.set()
        await asyncio.wait(taken)

    store, threads = SlowStore(), StoreThreads()
    asyncio.run(scene())


def test_where_no_thread_can_be_had_nothing_is_done_and_no_place_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scene() -> None:
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", no_thread)
            for _ in range(THREADS + WAITING_LIMIT + 1):
                with pytest.raises(UnavailableError, match="can't start new thread; try again"):
                    await threads.run(store.answer)
        assert await threads.run(lambda: "bytes") == "bytes"
        assert store.asked == 0, "nobody waits for that"

    store, threads = SlowStore(), StoreThreads()
    asyncio.run(scene())


def test_what_waits_when_the_service_ends_is_given_up() -> None:
    async def scene() -> None:
        taken = [asyncio.ensure_future(threads.run(store.answer)) for _ in range(THREADS + 1)]
        while store.asked < THREADS:
            await asyncio.sleep(0)
        threads.close()
        with pytest.raises(asyncio.CancelledError):
            await taken[-1]
        with pytest.raises(UnavailableError, match="shutdown"):
            await threads.run(store.answer)
        store.gate.set()
        assert await asyncio.gather(*taken[:-1]) == ["bytes"] * THREADS

    store, threads = SlowStore(), StoreThreads()
    asyncio.run(scene())
