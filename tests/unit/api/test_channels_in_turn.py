"""Agents that all connect at once are let in one a turn, so that nobody else waits for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tuner_service.api.guard import ChannelsInTurn

AGENTS = 30


class Application:
    """Notes who was let in."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(scope["path"])


def arriving(door: ChannelsInTurn, kind: str, path: str) -> asyncio.Task[None]:
    return asyncio.ensure_future(door({"type": kind, "path": path}, None, None))  # type: ignore[arg-type]  # not used


def test_of_many_agents_at_most_one_is_let_in_a_turn_and_a_read_waits_for_none() -> None:
    async def scene() -> None:
        app = Application()
        door = ChannelsInTurn(app)
        agents = [arriving(door, "websocket", f"{n}") for n in range(AGENTS)]
        read = arriving(door, "http", "read")
        before = 0
        while not all(agent.done() for agent in agents):
            await asyncio.sleep(0)
            assert len([path for path in app.begun if path != "read"]) - before <= 1
            before = len([path for path in app.begun if path != "read"])
        assert read.done()
        assert app.begun.index("read") <= 1
        assert [path for path in app.begun if path != "read"] == [f"{n}" for n in range(AGENTS)], "in their order"

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_an_agent_that_hangs_up_while_it_waits_holds_up_nobody() -> None:
    async def scene() -> None:
        app = Application()
        door = ChannelsInTurn(app)
        agents = [arriving(door, "websocket", f"{n}") for n in range(4)]
        await asyncio.sleep(0)
        agents[0].cancel()
        agents[2].cancel()
        await asyncio.wait(agents)
        assert app.begun == ["1", "3"]

    asyncio.run(asyncio.wait_for(scene(), 30))
