"""Removing an experiment's folders while the parent of a trial that has just ended still writes there."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from trials.agent.agent import Agent
from trials.agent.home import Home
from trials.wire.attempt import AttemptKey
from trials.wire.messages import RemoveExperiment


class Writing(Home):
    """A folder in which something else appears, as often as ``fills`` says, while it is removed."""

    fills = 2

    def remove_experiment(self, experiment_id: str) -> None:
        if self.fills:
            self.fills -= 1
            raise OSError(39, "Directory not empty")
        super().remove_experiment(experiment_id)


def test_folders_that_are_written_to_while_they_are_removed_are_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.agent.removing.PAUSES_S", (0.0, 0.0, 0.0))
    home = Writing(tmp_path)
    home.make()
    folder = home.attempts / "exp" / "1" / "1-n1"
    folder.mkdir(parents=True)

    async def remove() -> None:
        agent = Agent(home)
        agent.remove_experiment(RemoveExperiment(experiment_id="exp"))
        await agent.close()

    asyncio.run(remove())

    assert not (home.attempts / "exp").exists()


class Damaged:
    """An attempt whose files are damaged: its end is known at once, and written down when ``may_write`` is set."""

    nonce = "n1"
    key = AttemptKey(experiment_id="exp", number=1, attempt=1)
    damage = "its reports were removed"
    exit: Any = None

    def __init__(self, happened: list[str]) -> None:
        self.happened, self.may_write = happened, threading.Event()

    def look(self) -> None:
        return None

    def order_stop(self, **_: Any) -> None:
        return None

    def kill_all(self) -> None:
        return None

    def end_damaged(self) -> None:
        self.exit = "files_damaged"

    def write_end(self) -> None:
        assert self.may_write.wait(60)
        self.happened.append("written")


def test_folders_go_after_the_end_of_a_damaged_attempt_was_written_also_where_it_is_forgotten_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    happened: list[str] = []
    damaged: Any = Damaged(happened)

    async def removed(home: Home, experiment_id: str) -> None:
        happened.append(f"{experiment_id} removed")

    monkeypatch.setattr("trials.agent.agent.remove_folders", removed)

    async def remove() -> None:
        agent = Agent(home)
        monkeypatch.setattr(agent, "_note_end", lambda held: happened.append("told"))
        agent.held["n1"] = damaged
        agent.look_at(damaged)
        while damaged.exit is None:
            await asyncio.sleep(0)
        del agent.held["n1"]  # the service has everything
        agent.remove_experiment(RemoveExperiment(experiment_id="exp"))
        for _ in range(10):
            await asyncio.sleep(0)
        damaged.may_write.set()
        await agent.close()

    asyncio.run(remove())

    assert happened == ["written", "exp removed"]
