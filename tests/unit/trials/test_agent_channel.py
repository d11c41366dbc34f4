"""How an agent looks for its service."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trials.agent.channel import Channel
from trials.agent.home import Home


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
