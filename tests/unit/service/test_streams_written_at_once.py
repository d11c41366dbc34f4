"""Events that go to a reader at once, without waking what waits for it: never before what came earlier."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.service.test_events import World, parsed, running
from tuner_service.service import events


def test_an_event_is_written_at_once_only_where_nothing_waits_before_it() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader, written = await world.open(), list[bytes]()
        takes = [True]

        def write(event: bytes) -> bool:
            if takes[0]:
                written.append(event)
            return takes[0]

        reader.stream.write = write
        waiting = asyncio.create_task(reader.more())
        while not reader.stream._has_sent_all:
            await asyncio.sleep(0)
        assert reader.stream.put(b"event: patch\ndata: 1\n\n", sequence=2)
        takes[0] = False
        assert reader.stream.put(b"event: patch\ndata: 2\n\n", sequence=3)
        takes[0] = True
        assert reader.stream.put(b"event: patch\ndata: 3\n\n", sequence=4)
        assert reader.stream.put(b"event: patch\ndata: 0\n\n", sequence=1)  # it has that already

        assert [event["data"] for event in await waiting] == [2, 3]
        assert reader.stream.put(b"event: patch\ndata: 4\n\n", sequence=5)
        assert [event["data"] for event in parsed(b"".join(written))] == [1]
        assert [event["data"] for event in await reader.more()] == [4]

    running(scenario)


def test_many_streams_get_fewer_patches_so_that_all_together_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATCHES_PER_S", 4.0)

    assert [events.pause_s(streams) for streams in (0, 1, 100, 200, events.MAX_STREAMS)] == [0.25, 0.25, 0.25, 0.5, 1.0]
