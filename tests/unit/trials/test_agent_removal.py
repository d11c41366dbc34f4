"""Removing an experiment's folders while the parent of a trial that has just ended still writes there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trials.agent.agent import Agent
from trials.agent.home import Home
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
