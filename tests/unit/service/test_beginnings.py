"""Streams that come back together: one read for all of them, and each is told what it missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_trial
from tests.unit.service.test_events import World, parsed, rows, running
from tuner_service.domain.errors import NotFoundError
from tuner_service.service.beginnings import NEAR, READS_AT_ONCE, Beginnings
from tuner_service.service.patches import ALL

READERS = 200


def of(world: World) -> Beginnings:
    return Beginnings(world.store.queries, lineage="memory", clock=world.hub._clock)


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The commits after which rows were asked for, in the order of the reads."""
    asked: list[int] = []
    touched_after = world.store.queries.touched_after

    def noted(sequence: int) -> Any:
        asked.append(sequence)
        return touched_after(sequence)

    monkeypatch.setattr(world.store.queries, "touched_after", noted)
    return asked


def test_readers_that_come_back_together_cause_one_read_and_share_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(20):
            world.commit(a_trial(number=number))
        asked, beginnings = counted(world, monkeypatch), of(world)

        found = await asyncio.gather(*(beginnings.of(EXPERIMENT_ID, f"{5 + n % 10}-memory") for n in range(READERS)))

        assert asked == [5]
        assert len({id(one.event) for one in found}) == 1
        (event,) = parsed(found[0].event)
        assert (event["id"], found[0].sequence) == ("20-memory", 20)
        assert sorted(rows(event)) == list(range(5, 20))

    running(scenario)


def test_who_has_far_less_does_not_make_all_others_read_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(4 * NEAR):
            world.commit(a_trial(number=number))
        asked, beginnings, newest = counted(world, monkeypatch), of(world), 4 * NEAR

        lasts = [newest - 1, 1, *[newest - 1] * READERS]
        found = await asyncio.gather(*(beginnings.of(EXPERIMENT_ID, f"{last}-memory") for last in lasts))

        assert sorted(asked) == [1, newest - 1]
        assert [len(rows(parsed(one.event)[0])) for one in found[:3]] == [1, newest - 1, 1]

    running(scenario)


def test_of_those_that_share_a_read_each_is_answered_by_its_own_id() -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            world.commit(a_trial(number=1))
        beginnings = of(world)

        lasts = ["2-memory", "5-memory", "x", "2-other", ""]
        found = await asyncio.gather(*(beginnings.of(ALL, last) for last in lasts))

        events = [parsed(one.event)[0] for one in found]
        assert [event["event"] for event in events] == ["patch", "gap", "gap", "gap", "begin"]
        assert {event["data"]["reason"] for event in events if event["event"] == "gap"} == {"unknown"}

    running(scenario)


def test_who_comes_while_others_are_read_for_is_read_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.commit()
        beginnings, entered, go_on = of(world), threading.Event(), threading.Event()
        read = beginnings.read

        def held(topic: str, lasts: Iterable[str]) -> Any:
            found = read(topic, lasts)
            entered.set()
            assert go_on.wait(10)
            return found

        monkeypatch.setattr(beginnings, "read", held)
        first = asyncio.create_task(beginnings.of(EXPERIMENT_ID, "1-memory"))
        await asyncio.to_thread(entered.wait, 10)
        later = world.commit(a_trial(number=3))
        second = asyncio.create_task(beginnings.of(EXPERIMENT_ID, "1-memory"))
        await asyncio.sleep(0)
        go_on.set()

        assert (await first).sequence == 1
        assert (await second).sequence == later

    running(scenario)


def test_few_reads_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(10 * NEAR):
            world.commit(a_trial(number=number))
        beginnings, lock = of(world), threading.Lock()
        read, under_way, most = beginnings.read, 0, 0

        def noted(topic: str, lasts: Iterable[str]) -> Any:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            try:
                return read(topic, lasts)
            finally:
                with lock:
                    under_way -= 1

        monkeypatch.setattr(beginnings, "read", noted)
        lasts = [f"{1 + NEAR * place}-memory" for place in range(10)]
        await asyncio.gather(*(beginnings.of(EXPERIMENT_ID, last) for last in lasts))

        assert 1 <= most <= READS_AT_ONCE

    running(scenario)


def test_a_reader_that_leaves_takes_no_other_with_it_and_an_error_is_told_to_all() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        beginnings = of(world)
        leaving, *staying = [asyncio.create_task(beginnings.of(EXPERIMENT_ID, "1-memory")) for _ in range(3)]
        nowhere = [asyncio.create_task(beginnings.of("nowhere", "")) for _ in range(3)]
        await asyncio.sleep(0)
        leaving.cancel()

        assert [(await one).sequence for one in staying] == [1, 1]
        for result in await asyncio.gather(*nowhere, return_exceptions=True):
            assert isinstance(result, NotFoundError)
        assert beginnings._waiting == {}

    running(scenario)
